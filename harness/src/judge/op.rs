//! T2: products of MLX itself, in shapes that only models reach, against a second formulation. No other engine decides: an
//! engine whose product leaves plain arithmetic is wrong, whoever else is.

use serde_json::json;

use super::{CellObservations, Finding, ROLES, Severity, role_name};
use crate::matrix::{Cell, Measured, Probe, Role};

pub use super::codes::PRODUCT_WRONG as WRONG;

/// One error a build whose product leaves the second formulation; for the reference a warning, which says that the fault
/// is upstream's.
pub fn findings(cell: &Cell, seen: &CellObservations) -> Vec<Finding> {
    let Probe::Op { tolerance, product } = &cell.probe else { return Vec::new() };
    ROLES
        .iter()
        .filter_map(|role| {
            let observation = seen.of(*role)?;
            let Some(Measured::Op { done }) = &observation.measured else { return None };
            if done.non_finite == 0 && done.max_error <= *tolerance {
                return None;
            }
            let how = match done.non_finite {
                0 => format!(
                    "is off by {:.1e} of the largest value (limit {tolerance:.0e}), most at row {} of {}",
                    done.max_error, done.worst_row, done.rows
                ),
                n => format!("holds {n} NaN or infinite values"),
            };
            Some(Finding {
                code: WRONG.into(),
                subject: (*role).into(),
                severity: if *role == Role::Reference { Severity::Warning } else { Severity::Error },
                message: format!("the {}'s product {how}", role_name(*role)),
                evidence: json!({
                    "product": product,
                    "done": done,
                    "diagnosis": "mlx-operator",
                    "separation": { "runner_up": "the model's code: it takes no part in this product" },
                    "command": observation.command,
                }),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::protocol::{Device, OpDone, Product},
        judge::toy::{self, Fault, logits_cell},
    };

    #[test]
    fn a_product_beyond_its_tolerance_is_an_error_and_one_that_is_no_number_too() {
        let product = Product::Repeat { rows: 4, width: 2, times: 2 };
        let cell = Cell { probe: Probe::Op { product, tolerance: 1e-5 }, ..logits_cell("m") };
        let mut seen = toy::seen(&cell, None, None, None);
        for (max_error, non_finite, expected) in [(1e-6, 0, 0), (1e-4, 0, 1), (0.0, 3, 1)] {
            let base = toy::seen(&logits_cell("m"), Some(Fault::None), None, None).candidate.unwrap();
            let done = OpDone {
                device: Device::Cpu,
                rows: 8,
                checked_rows: 8,
                non_finite,
                max_error,
                worst_row: 7,
                took_s: 0.0,
            };
            seen.candidate =
                Some(crate::matrix::Observation { measured: Some(Measured::Op { done }), ..base });
            assert_eq!(findings(&cell, &seen).len(), expected, "{max_error} {non_finite}");
        }
    }
}
