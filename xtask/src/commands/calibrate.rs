//! `calibrate`: how much noise do thresholds have to clear on this machine?

use std::{collections::BTreeMap, env::consts::OS, fmt::Write as _, path::Path};

use harness::{
    build::Layout,
    cause::calibrate::{self, CLEARANCE, Calibration, Noise},
    config::{find_build, load_builds, load_matrix},
    gate::{GateRequest, OnFailure},
    matrix::{Filter, backends_of, expand_cells},
};

use crate::{
    cli::{CalibrateArgs, Format},
    console::Console,
    exit::{Exit, Failure},
    output::{Document, GENERATED_BY, print_text},
};

/// Runs gates of a build against itself and prints the noise; exit code 1 where one of them did not pass.
pub(crate) fn run(root: &Path, args: CalibrateArgs, console: &Console) -> Result<Exit, Failure> {
    let builds = load_builds(root)?;
    let matrix = load_matrix(root, &args.matrix, &builds)?;
    let build = find_build(&builds, args.build.as_deref().unwrap_or(&matrix.candidate))?;
    let plan = expand_cells(&matrix, backends_of(OS)).select(&Filter::new(args.filter))?;
    let layout = Layout::of_repository(root);
    let calibration = calibrate::run(
        &GateRequest {
            layout: &layout,
            matrix: &matrix,
            plan: &plan,
            candidate: build,
            baseline: build,
            on_failure: OnFailure::GoOn,
            reports: &layout.work.join("calibrate"),
            generated_by: GENERATED_BY.to_owned(),
            command: "cargo xtask calibrate".to_owned(),
            bundle: None,
            candidate_env: BTreeMap::new(),
        },
        args.gates.get(),
        console,
    )?;
    console.clear();
    match args.format {
        Format::Json => Document::new("calibrate", 1, &calibration).print()?,
        Format::Text => print_text(&text(&calibration))?,
    }
    Ok(if calibration.false_alarms.is_empty() { Exit::Pass } else { Exit::Found })
}

/// The measurement for people, the thresholds in a form that a matrix takes.
fn text(c: &Calibration) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("text grows");
    line(format!(
        "# {} against itself, {} gates with the cells of {}: {} false alarms",
        c.build,
        c.gates,
        c.matrix,
        c.false_alarms.len()
    ));
    line(format!(
        "# both are the program {}; clean builds of one recipe make the same file",
        c.program_sha256
    ));
    for alarm in &c.false_alarms {
        line(format!("#   {}", alarm.replace(char::is_control, " ")));
    }
    let told = |name: &str, n: &Noise| {
        format!(
            "# {name}: {} rows, mean KL {:.1e}, p99 KL {:.1e}, relative L2 {:.1e}, 1 - cosine {:.1e}, one logit {:.1e}, {} first \
             choices lost",
            n.rows, n.mean_kl, n.p99_kl, n.relative_l2, n.one_minus_cosine, n.max_logit_gap, n.top1_lost
        )
    };
    line(told("largest against itself", &c.against_itself));
    line(told("largest against the reference", &c.against_reference));
    let given = &c.given;
    line(format!(
        "# given: mean-kl {:e}, p99-kl {:e}, relative-l2 {:e}, cosine {}, max-logit-gap {:e}",
        given.mean_kl, given.p99_kl, given.relative_l2, given.cosine, given.max_logit_gap
    ));
    let fits: Vec<String> = c
        .headroom
        .iter()
        .map(
            |(name, times)| {
                if times.is_finite() { format!("{name} {times:.0}") } else { format!("{name} no noise") }
            },
        )
        .collect();
    line(format!("# the noise fits into the given thresholds so many times: {}", fits.join(", ")));
    line(format!("# {CLEARANCE} times the noise of this machine, in the form that a matrix takes:"));
    let t = &c.measured;
    line("[thresholds]".to_owned());
    for (key, value) in [
        ("mean-kl", t.mean_kl),
        ("p99-kl", t.p99_kl),
        ("top1-agreement", t.top1_agreement),
        ("margin", t.margin),
        ("relative-l2", t.relative_l2),
        ("cosine", t.cosine),
        ("max-logit-gap", t.max_logit_gap),
    ] {
        line(format!("{key} = {value:?}"));
    }
    out
}
