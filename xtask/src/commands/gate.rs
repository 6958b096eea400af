//! `gate` and `nightly`: may this build become the pin?

use std::{
    env::{self, consts::OS},
    ffi::OsString,
    fmt::Write,
    path::Path,
};

use harness::{
    build::Layout,
    config::{find_build, load_builds, load_matrix, spec::MatrixSpec},
    gate::{self, GateRequest, OnFailure, bundle::Bundle},
    matrix::{Backend, Disposition, Filter, Plan, PlannedCell, backends_of, expand_cells},
    report::summary,
    tools::process::quoted,
    verdict::Verdict,
};
use serde::Serialize;

use crate::{
    cli::{Format, GateArgs},
    console::Console,
    exit::{Exit, Failure},
    output::{Document, GENERATED_BY, print_text},
};

/// Plans the run and, unless only the plan was asked for, carries it out.
pub(crate) fn run(
    root: &Path,
    args: GateArgs,
    default_matrix: &str,
    console: &Console,
) -> Result<Exit, Failure> {
    let bundle = args.bundle.as_deref().map(Bundle::open).transpose()?;
    let (root, builds) = match &bundle {
        Some(bundle) => (bundle.folder(), bundle.builds().to_vec()),
        None => (root, load_builds(root)?),
    };
    let backends =
        bundle.as_ref().map_or_else(|| backends_of(OS).to_vec(), |bundle| bundle.backends().to_vec());
    let mut matrix = load_matrix(root, args.matrix.as_deref().unwrap_or(default_matrix), &builds)?;
    matrix.candidate =
        find_build(&builds, args.candidate.as_deref().unwrap_or(&matrix.candidate))?.name.clone();
    matrix.baseline = find_build(&builds, args.baseline.as_deref().unwrap_or(&matrix.baseline))?.name.clone();
    let plan = expand_cells(&matrix, &backends).select(&Filter::new(args.filter))?;
    let layout = Layout { mirrors: args.mirrors.mirror_root, ..Layout::of_repository(root) };
    if bundle.is_none() {
        gate::check_packages(&matrix, &layout)?;
    }
    if args.plan {
        return print_plan(&matrix, &plan, args.format);
    }
    if plan.runnable().next().is_none() {
        let names: Vec<String> = backends.iter().map(ToString::to_string).collect();
        return Err(Failure::new(
            Exit::Inconclusive,
            format!(
                "no chosen cell of matrix `{}` runs on this machine, which has {}",
                matrix.name,
                names.join(", ")
            ),
            Some("the same command with `--plan` says why each cell is left out".to_owned()),
        ));
    }
    let reports = args.report_dir.unwrap_or_else(|| root.join("reports"));
    let outcome = gate::run(
        &GateRequest {
            layout: &layout,
            matrix: &matrix,
            plan: &plan,
            candidate: find_build(&builds, &matrix.candidate)?,
            baseline: find_build(&builds, &matrix.baseline)?,
            on_failure: if args.fail_fast { OnFailure::Stop } else { OnFailure::GoOn },
            reports: &reports,
            generated_by: GENERATED_BY.to_owned(),
            command: command_line(env::args_os().skip(1)),
            bundle: bundle.as_ref(),
            candidate_env: args.candidate_env.into_iter().collect(),
        },
        console,
    )?;
    console.clear();
    match args.format {
        Format::Json => print_text(&outcome.report.to_json())?,
        Format::Text => print_text(&summary(&outcome.report))?,
    }
    Ok(match outcome.report.verdict {
        Verdict::Pass => Exit::Pass,
        Verdict::Fail => Exit::Found,
        Verdict::Inconclusive => Exit::Inconclusive,
    })
}

fn print_plan(matrix: &MatrixSpec, plan: &Plan, format: Format) -> Result<Exit, Failure> {
    match format {
        Format::Json => Document::new("gate-plan", 1, PlanDocument::new(matrix, plan)).print()?,
        Format::Text => print_text(&plan_text(matrix, plan))?,
    }
    Ok(Exit::Pass)
}

#[derive(Serialize)]
struct PlanDocument<'p> {
    matrix: &'p str,
    candidate: &'p str,
    baseline: &'p str,
    reference: &'p str,
    cells: Vec<CellEntry<'p>>,
}

#[derive(Serialize)]
struct CellEntry<'p> {
    id: &'p str,
    model: &'p str,
    precision: String,
    context: usize,
    probe: &'p str,
    backend: Backend,
    engine_role: &'static str,
    run: bool,
    why_not: Option<WhyNot<'p>>,
}

#[derive(Serialize)]
struct WhyNot<'p> {
    kind: &'static str,
    reason: &'p str,
}

impl<'p> PlanDocument<'p> {
    fn new(matrix: &'p MatrixSpec, plan: &'p Plan) -> Self {
        Self {
            matrix: &matrix.name,
            candidate: &matrix.candidate,
            baseline: &matrix.baseline,
            reference: &matrix.reference,
            cells: plan.cells.iter().map(CellEntry::new).collect(),
        }
    }
}

impl<'p> CellEntry<'p> {
    fn new(PlannedCell { cell, disposition }: &'p PlannedCell) -> Self {
        let why_not = match disposition {
            Disposition::Run => None,
            Disposition::NotApplicable(reason) => Some(WhyNot { kind: "not-applicable", reason }),
            Disposition::Deselected(reason) => Some(WhyNot { kind: "deselected", reason }),
        };
        Self {
            id: cell.id.as_str(),
            model: &cell.model,
            precision: cell.precision.to_string(),
            context: cell.context,
            probe: &cell.probe_name,
            backend: cell.backend,
            engine_role: "candidate",
            run: why_not.is_none(),
            why_not,
        }
    }
}

/// The plan for people: cells that run first, in run order, then the others with the reason once for all of them.
fn plan_text(matrix: &MatrixSpec, plan: &Plan) -> String {
    let mut text = format!(
        "matrix {}: candidate {} against baseline {}, reference {}\n\nruns, in this order:\n",
        matrix.name, matrix.candidate, matrix.baseline, matrix.reference
    );
    let runs = plan.runnable().count();
    for cell in plan.runnable() {
        line(&mut text, &format!("  {}", cell.id));
    }
    if runs == 0 {
        line(&mut text, "  (nothing)");
    }
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for planned in &plan.cells {
        let reason = match &planned.disposition {
            Disposition::Run => continue,
            Disposition::NotApplicable(reason) => ("not applicable", reason.as_str()),
            Disposition::Deselected(reason) => ("deselected", reason.as_str()),
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    for (kind, reason) in reasons {
        line(&mut text, &format!("\n{kind}, {reason}:"));
        for planned in &plan.cells {
            if matches!(&planned.disposition, Disposition::NotApplicable(why) | Disposition::Deselected(why) if why == reason)
            {
                line(&mut text, &format!("  {}", planned.cell.id));
            }
        }
    }
    line(&mut text, &format!("\n{runs} of {} cells run", plan.cells.len()));
    text
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("text grows");
}

/// The command as a person could paste it.
pub(super) fn command_line(args: impl Iterator<Item = OsString>) -> String {
    args.fold("cargo xtask".to_owned(), |line, arg| line + " " + &quoted(&arg))
}
