//! The model runner: one build of an engine library behind Regraft's JSON-lines protocol on stdin and stdout.
//! Which library API is spoken is a cargo feature; everything outside `dialect/` knows none of them.

mod checkpoint;
mod decode;
mod dialect;
mod logits;
mod mlx;
mod op;
#[path = "../../src/engine/protocol.rs"]
#[allow(unreachable_pub, reason = "the file is shared with the harness library")]
mod protocol;
mod serve;
mod timing;

use std::{env, fs::File, io, os::fd::AsFd, process::ExitCode};

#[cfg(feature = "eredu-05")]
use dialect::eredu_05::Eredu05 as Engine;
#[cfg(feature = "safemlx-lm-04")]
use dialect::safemlx_lm_04::SafemlxLm04 as Engine;

#[cfg(not(any(feature = "eredu-05", feature = "safemlx-lm-04")))]
compile_error!("the runner needs one dialect: enable a feature of that name");

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let beside = if arguments == ["bare"] { serve::Beside::Bare } else { serve::Beside::Nothing };
    let served = claim_stdout().and_then(|out| serve::serve(Engine::new(), io::stdin().lock(), out, beside));
    timing::Fault::from_environment().at_exit();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot serve the harness: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Keeps the real stdout for protocol lines and points descriptor 1 at stderr, so that nothing that a library
/// prints can get between them.
fn claim_stdout() -> io::Result<File> {
    let out = io::stdout().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdout(io::stderr())?;
    Ok(File::from(out))
}
