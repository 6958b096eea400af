//! Which architecture families are there, who serves them, and are checkpoints of them made here? A gate that ran one family
//! says nothing about another.

/// A family of architectures: one `model_type`, and the code that serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Its `model_type`.
    pub name: &'static str,
    /// Other names that engines give what they serve by the same code.
    pub other_names: &'static [&'static str],
    /// The dialects whose released library serves it; revisions of the same dialect may serve more.
    pub dialects: &'static [&'static str],
    /// Why no checkpoint of it is made here, where none is.
    pub not_made: Option<&'static str>,
}

/// The API of safemlx-lm 0.4: `ModelKind` of 0.4.1.
const SAFEMLX_LM: &str = "safemlx-lm-0.4";
/// The API of eredu 0.5: `ModelKind` of eredu-architectures 0.5.0.
const EREDU: &str = "eredu-0.5";

const BOTH: &[&str] = &[SAFEMLX_LM, EREDU];
const LATER: &[&str] = &[EREDU];

const NO_REFERENCE: &str = "mlx-lm 0.32 has no implementation of it, so that nothing could decide";
const PICTURES: &str = "mlx-lm runs its text half alone, and eredu wants its vision tower, too";

/// Every family that a dialect serves, by name. None serves phi, or a Gemma before the fourth.
pub const FAMILIES: &[Family] = &[
    served("deepseek_v3", LATER, None),
    served("deepseek_v4", LATER, Some(NO_REFERENCE)),
    Family {
        other_names: &["gemma4_text", "gemma4_unified", "gemma4_unified_text"],
        ..served("gemma4", BOTH, None)
    },
    served("gpt_oss", LATER, None),
    served("inkling_mm_model", LATER, Some(NO_REFERENCE)),
    served("kimi_linear", LATER, None),
    served("lfm2", LATER, None),
    served("lfm2_moe", LATER, None),
    served("llama", BOTH, None),
    served("mistral", LATER, None),
    Family { other_names: &["personaplex"], ..served("moshi", LATER, Some(NO_REFERENCE)) },
    Family { other_names: &["muse_glimmer_text"], ..served("muse_glimmer", LATER, Some(PICTURES)) },
    served("nemotron_h", BOTH, None),
    served("qwen2", LATER, None),
    served("qwen3", BOTH, None),
    Family { other_names: &["qwen3_5_text"], ..served("qwen3_5", LATER, None) },
    Family { other_names: &["qwen3_5_moe_text"], ..served("qwen3_5_moe", BOTH, None) },
    served("qwen3_moe", LATER, None),
    served("qwen3_next", LATER, None),
    Family { other_names: &["qwen3_vl_text"], ..served("qwen3_vl", LATER, Some(PICTURES)) },
    Family { other_names: &["qwen3_vl_moe_text"], ..served("qwen3_vl_moe", LATER, Some(PICTURES)) },
];

const fn served(
    name: &'static str,
    dialects: &'static [&'static str],
    not_made: Option<&'static str>,
) -> Family {
    Family { name, other_names: &[], dialects, not_made }
}

/// The family that an engine means by a `model_type`: its own name where no table knows it.
pub fn family_name(model_type: &str) -> &str {
    FAMILIES
        .iter()
        .find(|family| family.name == model_type || family.other_names.contains(&model_type))
        .map_or(model_type, |family| family.name)
}

/// The families that a dialect serves, by name.
pub fn served_by(dialect: &str) -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().filter(move |family| family.dialects.contains(&dialect))
}

/// Whether a released library of a dialect refuses a `model_type`; false of dialects and types that no table knows.
pub fn is_refused_by(model_type: &str, dialect: &str) -> bool {
    let name = family_name(model_type);
    FAMILIES.iter().any(|family| family.name == name) && {
        let mut served = served_by(dialect).map(|family| family.name).peekable();
        served.peek().is_some() && !served.any(|other| other == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::spec::Architecture;

    #[test]
    fn a_dialect_serves_its_own_families_in_order() {
        let names: Vec<_> = served_by(SAFEMLX_LM).map(|family| family.name).collect();
        assert_eq!(names, ["gemma4", "llama", "nemotron_h", "qwen3", "qwen3_5_moe"]);
        assert!(FAMILIES.is_sorted_by_key(|family| family.name));
        assert_eq!(served_by("another").count(), 0);
    }

    #[test]
    fn a_family_is_known_by_every_name_that_engines_give_it() {
        assert_eq!(family_name("gemma4_text"), "gemma4");
        assert_eq!(family_name("qwen3"), "qwen3");
        assert_eq!(family_name("something-new"), "something-new");
    }

    #[test]
    fn what_another_dialect_alone_serves_is_refused_and_what_nobody_knows_is_not() {
        for (model_type, dialect, refused) in [
            ("mistral", SAFEMLX_LM, true),
            ("qwen3_5_text", SAFEMLX_LM, true),
            ("qwen3_5_moe_text", SAFEMLX_LM, false),
            ("llama", SAFEMLX_LM, false),
            ("mistral", EREDU, false),
            ("mistral", "another", false),
            ("something-new", SAFEMLX_LM, false),
        ] {
            assert_eq!(is_refused_by(model_type, dialect), refused, "{model_type} {dialect}");
        }
    }

    #[test]
    fn checkpoints_are_made_of_every_family_that_has_no_reason_against_it() {
        // In the order of the table.
        let made: Vec<_> = FAMILIES.iter().filter(|f| f.not_made.is_none()).map(|f| f.name).collect();
        let mut laid_out = Architecture::ALL.map(Architecture::name);
        laid_out.sort_unstable();
        assert_eq!(made, laid_out);
    }
}
