//! Runs one program to its end: arguments instead of shell strings, its own process group, a log, a timeout that ends
//! the whole group. The only module naming `duct`. Conversations with a child are `tools::child`'s.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use super::{
    groups::GroupGuard,
    killed::{Killed, killed},
};

/// How much of a program's stderr is kept for messages, in bytes.
const TAIL_BYTES: u64 = 16 * 1024;
/// How many of its last lines a failure shows.
const TAIL_LINES: usize = 20;

/// A program to run, written down before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invocation {
    /// A path, or a name looked up on `PATH`.
    pub program: OsString,
    /// Its arguments, each as the program sees it.
    pub args: Vec<OsString>,
    /// Where it runs; the harness' own folder when absent.
    pub cwd: Option<PathBuf>,
    /// Variables set on top of the inherited environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Inherited variables that it must not see.
    pub env_remove: BTreeSet<OsString>,
    /// How long it may take before its whole process group is killed.
    pub timeout: Option<Duration>,
    /// A file that receives the command, its stderr and its stdout, appended.
    pub log: Option<PathBuf>,
    /// What it reads from stdin; nothing when absent.
    pub stdin: Option<Vec<u8>>,
}

/// What a finished program left behind, whatever its exit status.
#[derive(Debug, Clone)]
pub struct Completed {
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote to stdout, as text.
    pub stdout: String,
    /// The same, byte by byte.
    pub stdout_bytes: Vec<u8>,
    /// The end of what it wrote to stderr, at most 16 KiB.
    pub stderr_tail: String,
    /// How long it ran.
    pub took: Duration,
}

/// Why a program gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started at all.
    #[error("cannot start `{}`", .command)]
    Start {
        /// The command, as one could paste it.
        command: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended with a status other than success, by itself or killed.
    #[error("{}", failure_text(.command, &status_text(.status, .stderr_tail), .stderr_tail, .log.as_deref()))]
    Failed {
        /// The command, as one could paste it.
        command: String,
        /// `exit status: 2`, `signal: 9 (SIGKILL)`.
        status: String,
        /// The end of its stderr.
        stderr_tail: String,
        /// The full log.
        log: Option<PathBuf>,
    },
    /// It was killed, with everything that it had started, when its time was over.
    #[error("{}", failure_text(.command, &format!("killed after {} s", .timeout.as_secs_f64()), .stderr_tail, .log.as_deref()))]
    TimedOut {
        /// The command, as one could paste it.
        command: String,
        /// The time it was given.
        timeout: Duration,
        /// The end of its stderr.
        stderr_tail: String,
        /// The full log.
        log: Option<PathBuf>,
    },
    /// Its output could not be kept.
    #[error("cannot keep the output of `{command}` in `{}`", .path.display())]
    Output {
        /// The command, as one could paste it.
        command: String,
        /// The file that should have taken it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Completed {
    /// What ended it, or a program that it ran, where that was not their own doing.
    pub fn killed(&self) -> Option<Killed> {
        match self.status.success() {
            true => None,
            false => killed(&self.status.to_string(), &self.stderr_tail),
        }
    }
}

impl ProcessError {
    /// What to try.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Start { command, source } if source.kind() == io::ErrorKind::NotFound => {
                let program = command.split(' ').next().unwrap_or(command);
                Some(format!(
                    "`{program}` is not installed or not on PATH; `cargo xtask doctor` says how to get it"
                ))
            }
            Self::Output { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("the disk is full: make room and run the same command again".to_owned())
            }
            Self::TimedOut { .. } => Some(
                "run the command by hand to see what it waits for; a busy machine may only need a second try"
                    .to_owned(),
            ),
            _ => self.killed().map(|killed| killed.hint().to_owned()),
        }
    }

    /// What ended the program, or one that it ran, where that was not their own doing.
    pub fn killed(&self) -> Option<Killed> {
        match self {
            Self::Failed { status, stderr_tail, .. } => killed(status, stderr_tail),
            _ => None,
        }
    }

    /// The end of the program's stderr, where it ran.
    pub fn stderr_tail(&self) -> &str {
        match self {
            Self::Failed { stderr_tail, .. } | Self::TimedOut { stderr_tail, .. } => stderr_tail,
            _ => "",
        }
    }
}

impl Invocation {
    /// A program without arguments, in the harness' own folder and environment.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { program: program.as_ref().to_owned(), ..Self::default() }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments, in order.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Runs it in `dir`.
    #[must_use]
    pub fn cwd(mut self, dir: impl Into<PathBuf>) -> Self {
        self.cwd = Some(dir.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Hides inherited variables.
    #[must_use]
    pub fn env_remove<S: AsRef<OsStr>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.env_remove.extend(names.into_iter().map(|n| n.as_ref().to_owned()));
        self
    }

    /// Limits how long it may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Gives it `bytes` on stdin.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Appends its output to `path`.
    #[must_use]
    pub fn log(mut self, path: impl Into<PathBuf>) -> Self {
        self.log = Some(path.into());
        self
    }

    /// The command as a person could paste it into a shell, with its folder and variables.
    pub fn shell_line(&self) -> String {
        let mut words = Vec::new();
        if let Some(dir) = &self.cwd {
            words.push(format!("cd {} &&", quoted(dir.as_os_str())));
        }
        if !self.env.is_empty() || !self.env_remove.is_empty() {
            words.push("env".to_owned());
            words.extend(
                self.env_remove
                    .iter()
                    .filter(|n| !self.env.contains_key(*n))
                    .map(|n| format!("-u {}", quoted(n))),
            );
            words.extend(self.env.iter().map(|(n, v)| format!("{}={}", n.to_string_lossy(), quoted(v))));
        }
        words.push(quoted(&self.program));
        words.extend(self.args.iter().map(|a| quoted(a)));
        words.join(" ")
    }

    /// Runs it to its end, whatever its exit status. Errors: it did not start, or its time was over.
    pub fn run(&self) -> Result<Completed, ProcessError> {
        let started = Instant::now();
        let mut stdout = self.keep(tempfile::tempfile(), Path::new("a temporary file"))?;
        let mut stderr = match &self.log {
            Some(path) => self.keep(open_log(path, &self.shell_line()), path)?,
            None => self.keep(tempfile::tempfile(), Path::new("a temporary file"))?,
        };
        let stderr_from = self.keep(stderr.seek(SeekFrom::End(0)), Path::new("the log"))?;

        let handle = self
            .expression(&stdout, &stderr)
            .and_then(|e| e.start())
            .map_err(|source| ProcessError::Start { command: self.shell_line(), source })?;
        let group = handle.pids().first().copied().map(GroupGuard::new);
        let waited = match self.timeout {
            None => handle.wait().map(Some),
            Some(limit) => handle.wait_timeout(limit),
        };
        let status = match waited {
            Ok(Some(output)) => Some(output.status),
            Ok(None) => {
                if let Some(group) = &group {
                    group.kill();
                }
                let _ = handle.wait();
                None
            }
            Err(source) => return Err(ProcessError::Start { command: self.shell_line(), source }),
        };
        drop(group);

        let stderr_tail = self.keep(read_tail(&mut stderr, stderr_from), Path::new("the log"))?;
        let stdout_bytes = self.keep(read_from_start(&mut stdout), Path::new("a temporary file"))?;
        if self.log.is_some() && !stdout_bytes.is_empty() {
            let appended = stderr.write_all(&stdout_bytes);
            self.keep(appended, self.log.as_deref().unwrap_or(Path::new("the log")))?;
        }
        match (status, self.timeout) {
            (Some(status), _) => {
                let stdout = String::from_utf8_lossy(&stdout_bytes).into_owned();
                Ok(Completed { status, stdout, stdout_bytes, stderr_tail, took: started.elapsed() })
            }
            (None, timeout) => Err(ProcessError::TimedOut {
                command: self.shell_line(),
                timeout: timeout.unwrap_or_default(),
                stderr_tail,
                log: self.log.clone(),
            }),
        }
    }

    /// Runs it and takes anything but success for an error that shows command, status, last lines and log.
    pub fn run_ok(&self) -> Result<Completed, ProcessError> {
        let completed = self.run()?;
        if completed.status.success() {
            return Ok(completed);
        }
        Err(self.failure(&completed))
    }

    /// That it ended as `completed` tells, as an error.
    pub fn failure(&self, completed: &Completed) -> ProcessError {
        ProcessError::Failed {
            command: self.shell_line(),
            status: completed.status.to_string(),
            stderr_tail: completed.stderr_tail.clone(),
            log: self.log.clone(),
        }
    }

    fn expression(&self, stdout: &File, stderr: &File) -> io::Result<duct::Expression> {
        #[expect(clippy::disallowed_methods, reason = "this is the one door")]
        let mut expression = duct::cmd(&self.program, &self.args)
            .stdout_file(stdout.try_clone()?)
            .stderr_file(stderr.try_clone()?)
            .unchecked()
            .before_spawn(|command| {
                command.process_group(0);
                Ok(())
            });
        expression = match &self.stdin {
            Some(bytes) => expression.stdin_bytes(bytes.clone()),
            None => expression.stdin_null(),
        };
        if let Some(dir) = &self.cwd {
            expression = expression.dir(dir);
        }
        // Of duct's settings the first one made wins, so a variable both hidden and set would stay hidden.
        for name in self.env_remove.iter().filter(|name| !self.env.contains_key(*name)) {
            expression = expression.env_remove(name);
        }
        for (name, value) in &self.env {
            expression = expression.env(name, value);
        }
        Ok(expression)
    }

    fn keep<T>(&self, result: io::Result<T>, path: &Path) -> Result<T, ProcessError> {
        result.map_err(|source| ProcessError::Output {
            command: self.shell_line(),
            path: path.to_owned(),
            source,
        })
    }
}

/// The last lines of `text`, at most `lines`, without blank ones.
pub fn last_lines(text: &str, lines: usize) -> Vec<&str> {
    let all: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].to_vec()
}

/// A word as a shell takes it.
pub fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    shlex::try_quote(&word).map_or_else(|_| format!("{word:?}"), |q| q.into_owned())
}

fn open_log(path: &Path, command: &str) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
    writeln!(file, "$ {command}")?;
    Ok(file)
}

fn read_tail(file: &mut File, from: u64) -> io::Result<String> {
    let end = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(from.max(end.saturating_sub(TAIL_BYTES))))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_from_start(file: &mut File) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn status_text(status: &str, stderr_tail: &str) -> String {
    killed(status, stderr_tail).map_or_else(|| status.to_owned(), |killed| format!("{status}: {killed}"))
}

fn failure_text(command: &str, status: &str, stderr_tail: &str, log: Option<&Path>) -> String {
    let mut text = format!("command failed ({status}): {command}");
    for line in last_lines(stderr_tail, TAIL_LINES) {
        text.push_str("\n    | ");
        text.push_str(line);
    }
    if let Some(log) = log {
        text.push_str(&format!("\n    full log: {}", log.display()));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn stdout_is_returned_whole_and_stderr_by_its_end() {
        let done = Invocation::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).run().unwrap();
        assert_eq!((done.stdout.as_str(), done.stderr_tail.as_str()), ("out\n", "err\n"));
        assert_eq!(done.status.code(), Some(3));
    }

    #[test]
    fn the_shell_line_can_be_pasted() {
        let line = Invocation::new("prog")
            .args(["plain", "two words", "it's", "$HOME", ""])
            .cwd("/tmp/a b")
            .env("KEY", "v w")
            .env_remove(["GONE"])
            .shell_line();
        insta::assert_snapshot!(line, @r#"cd '/tmp/a b' && env -u GONE KEY='v w' prog plain 'two words' "it's" '$HOME' ''"#);
    }

    #[test]
    fn a_failure_shows_command_status_last_lines_and_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("deep/step.log");
        let error = Invocation::new("sh")
            .args(["-c", "echo kept; echo first >&2; echo >&2; echo last >&2; exit 7"])
            .log(&log)
            .run_ok()
            .unwrap_err();
        let text = error.to_string().replace(&dir.path().display().to_string(), "DIR");
        insta::assert_snapshot!(text, @r"
        command failed (exit status: 7): sh -c 'echo kept; echo first >&2; echo >&2; echo last >&2; exit 7'
            | first
            | last
            full log: DIR/deep/step.log
        ");
        let kept = fs::read_to_string(&log).unwrap();
        assert!(kept.starts_with("$ sh -c ") && kept.ends_with("kept\n"), "{kept}");
    }

    #[test]
    fn a_killed_program_is_not_told_as_one_that_failed() {
        let killed = Invocation::new("sh").args(["-c", "kill -9 $$"]).run_ok().unwrap_err();
        insta::assert_snapshot!(
            format!("{killed}\nhint: {}", killed.hint().unwrap()),
            @"
        command failed (signal: 9 (SIGKILL): ended by SIGKILL, most likely because memory ran out): sh -c 'kill -9 $$'
        hint: end what else takes memory, or let fewer compilers run at once (CARGO_BUILD_JOBS=1), then run the same command again
        "
        );
        let failed = Invocation::new("sh").args(["-c", "exit 1"]).run_ok().unwrap_err();
        assert_eq!((failed.killed(), failed.hint()), (None, None));
    }

    #[test]
    fn a_missing_program_is_named_with_a_hint() {
        let error = Invocation::new("regraft-no-such-program").arg("x").run().unwrap_err();
        insta::assert_snapshot!(error, @"cannot start `regraft-no-such-program x`");
        assert!(error.hint().unwrap().contains("not on PATH"));
    }

    #[test]
    fn a_timeout_ends_grandchildren_too() {
        let dir = tempfile::tempdir().unwrap();
        let survived = dir.path().join("survived");
        let started = Instant::now();
        let error = Invocation::new("sh")
            .args(["-c", "(sleep 1.2; : > \"$0\") & wait"])
            .arg(&survived)
            .timeout(Duration::from_millis(200))
            .run()
            .unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
        assert!(
            started.elapsed() < Duration::from_secs(1),
            "the wait must not last as long as the grandchild"
        );
        thread::sleep(Duration::from_millis(1500));
        assert!(!survived.exists(), "the grandchild lived on after its group was killed");
    }

    #[test]
    fn hidden_variables_are_not_inherited() {
        // Cargo sets this one for every test.
        let ask = Invocation::new("sh").args(["-c", "echo ${CARGO_MANIFEST_DIR+seen}"]);
        assert_eq!(ask.run().unwrap().stdout, "seen\n");
        assert_eq!(ask.clone().env_remove(["CARGO_MANIFEST_DIR"]).run().unwrap().stdout, "\n");
        let own = ask.env_remove(["CARGO_MANIFEST_DIR"]).env("CARGO_MANIFEST_DIR", "ours");
        assert_eq!(
            own.run().unwrap().stdout,
            "seen\n",
            "what is set for a program is set, whatever it must not inherit"
        );
    }
}
