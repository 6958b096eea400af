//! The one door for a child process that is spoken to line by line while it lives. Every wait has an end, every buffer
//! a bound, and no member of the child's process group outlives the handle. Programs that merely run to completion go
//! through `tools::process`.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use crate::tools::groups::GroupGuard;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, prlimit};

/// How many of the last lines on stderr are kept.
pub const KEPT_LINES: usize = 40;

/// Longest line on stderr that is kept; the rest of the line is dropped.
const KEPT_LINE_BYTES: usize = 2_000;

/// Largest log of stderr on disk; the rest is dropped.
const LOG_BYTES: u64 = 16 << 20;

/// How much of an overlong line is handed back.
const HEAD_BYTES: usize = 1_024;

/// How often a waiting reader looks whether the child still lives.
const POLL: Duration = Duration::from_millis(50);

/// How long output may still arrive after the child's end, and how long its readers may take to see the end.
const DRAIN: Duration = Duration::from_millis(500);

/// What to start.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildSpec {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables to set on top of the inherited environment.
    pub env: BTreeMap<String, String>,
    /// Where the whole of stderr is also written (up to 16 MiB), if anywhere.
    pub stderr_log: Option<PathBuf>,
    /// Longest line on stdout, in bytes without its end, that is taken for a line.
    pub max_line_bytes: usize,
    /// Bytes of private memory that it may map, if there is a limit. Only Linux can set one on another process.
    pub memory_limit_bytes: Option<u64>,
}

impl ChildSpec {
    /// The command as one could paste it into a shell, variables first.
    pub fn command_line(&self) -> String {
        let mut words: Vec<String> =
            self.env.iter().map(|(name, value)| format!("{name}={}", shell_word(value))).collect();
        words.push(shell_word(&self.program.to_string_lossy()));
        words.extend(self.args.iter().map(|arg| shell_word(arg)));
        words.join(" ")
    }
}

/// What came of waiting for a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A line, without its end.
    Line(Vec<u8>),
    /// A line longer than allowed: its beginning. Nothing after it is read any more.
    Overlong(Vec<u8>),
    /// Stdout is closed, or the child has ended and left nothing more to read.
    End,
    /// Nothing came in time.
    TimedOut,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The exit code, when it ended by itself.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) => None,
        }
    }

    /// The signal that ended it.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }
}

/// A running child, at the head of its own process group. Dropping it ends the whole group at once.
#[derive(Debug)]
pub struct InteractiveChild {
    child: std::process::Child,
    group: Pid,
    /// Ends the group when the harness is interrupted; let go once the child is reaped.
    guard: Option<GroupGuard>,
    /// Lines for the child; gone once stdin is to be closed.
    to_stdin: Option<Sender<Vec<u8>>>,
    from_stdout: Receiver<Heard>,
    stdout_over: bool,
    tail: Arc<Mutex<VecDeque<String>>>,
    stderr_over: Receiver<()>,
    exit: Option<Exit>,
}

/// Why a child could not be started or waited for.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program did not start.
    #[error("cannot start `{command}`")]
    Start {
        /// The command as one could paste it.
        command: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The log of stderr could not be made.
    #[error("cannot make the log `{path}`")]
    Log {
        /// Where it should have been.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl ChildError {
    /// What a person may try.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                "the program is not there: build it again, or provision again"
            }
            Self::Start { .. } => "check that the program is executable and made for this machine",
            Self::Log { .. } => "check that the folder can be written and the disk is not full",
        }
    }
}

impl InteractiveChild {
    /// Starts the program in a process group of its own, with all three standard streams as pipes.
    pub fn start(spec: &ChildSpec) -> Result<Self, ChildError> {
        let log = match &spec.stderr_log {
            Some(path) => Some(create_log(path)?),
            None => None,
        };
        #[allow(
            clippy::disallowed_methods,
            reason = "this is the door: duct keeps no pipe open in both directions and makes no process group"
        )]
        let mut command = std::process::Command::new(&spec.program);
        let mut child = command
            .args(&spec.args)
            .envs(&spec.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|source| ChildError::Start { command: spec.command_line(), source })?;
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let group = Pid::from_child(&child);
        let guard = GroupGuard::new(child.id());
        limit_memory(group, spec.memory_limit_bytes);

        let (to_stdin, lines) = mpsc::channel();
        thread::spawn(move || write_lines(stdin, &lines));
        // A small bound: a child that talks without being asked waits instead of filling memory.
        let (heard, from_stdout) = mpsc::sync_channel(2);
        let max_line_bytes = spec.max_line_bytes;
        thread::spawn(move || read_lines(stdout, max_line_bytes, &heard));
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let (over, stderr_over) = mpsc::channel();
        let kept = Arc::clone(&tail);
        thread::spawn(move || {
            keep_tail(stderr, log, &kept);
            drop(over);
        });

        Ok(Self {
            child,
            group,
            guard: Some(guard),
            to_stdin: Some(to_stdin),
            from_stdout,
            stdout_over: false,
            tail,
            stderr_over,
            exit: None,
        })
    }

    /// The process id, which is also the id of the group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Hands a line to the child, end of line added. It never blocks and never fails: a child that has ended or does
    /// not read is noticed by [`Self::hear`].
    pub fn say(&mut self, line: &str) {
        if let Some(to_stdin) = &self.to_stdin {
            let mut bytes = Vec::with_capacity(line.len() + 1);
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
            // The writer is gone when the child has closed its stdin.
            let _ = to_stdin.send(bytes);
        }
    }

    /// Closes the child's stdin once everything said has been written.
    pub fn close_stdin(&mut self) {
        self.to_stdin = None;
    }

    /// Waits for the next line on stdout until `deadline`; calls `meanwhile` some times a second.
    pub fn hear(&mut self, deadline: Instant, meanwhile: &mut dyn FnMut()) -> Heard {
        if self.stdout_over {
            return Heard::End;
        }
        let mut ended_at: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let wait = POLL.min(deadline.saturating_duration_since(now));
            match self.from_stdout.recv_timeout(wait) {
                Ok(Heard::Line(line)) => return Heard::Line(line),
                Ok(last) => {
                    self.stdout_over = true;
                    return last;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.stdout_over = true;
                    return Heard::End;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            meanwhile();
            // A grandchild may hold the pipe open long after the child itself has ended.
            if ended_at.is_none() && self.peek_exit().is_some() {
                ended_at = Some(Instant::now());
            }
            if ended_at.is_some_and(|at| at.elapsed() >= DRAIN) {
                self.stdout_over = true;
                return Heard::End;
            }
            if Instant::now() >= deadline {
                return Heard::TimedOut;
            }
        }
    }

    /// Waits for the child's end until `deadline`; `None` when it still lives then. What its group left behind is
    /// ended.
    pub fn wait(&mut self, deadline: Instant) -> Option<Exit> {
        let mut pause = Duration::from_millis(1);
        while self.peek_exit().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(POLL);
        }
        Some(self.reap())
    }

    /// Ends the whole group: SIGTERM, `grace` for the child to end, then SIGKILL for whatever is left.
    pub fn end(&mut self, grace: Duration) -> Exit {
        if self.exit.is_none() && self.peek_exit().is_none() {
            // A stopped process acts on SIGTERM only once it is continued.
            let _ = kill_process_group(self.group, Signal::TERM);
            let _ = kill_process_group(self.group, Signal::CONT);
            self.wait(Instant::now() + grace);
        }
        self.reap()
    }

    /// The last lines on stderr, at most [`KEPT_LINES`]. After the child's end they are complete.
    pub fn last_lines(&self) -> Vec<String> {
        if self.exit.is_some() {
            // The sender is dropped at the end of stderr; a grandchild outside the group may delay that for ever.
            let _ = self.stderr_over.recv_timeout(DRAIN);
        }
        let tail = self.tail.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tail.iter().cloned().collect()
    }

    /// How the child ended, left as a zombie so that the group's id cannot be given to a stranger.
    fn peek_exit(&self) -> Option<Exit> {
        if self.exit.is_some() {
            return self.exit;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.group), options).ok()??;
        let by_signal = status.terminating_signal().map(Exit::Signal);
        by_signal.or_else(|| status.exit_status().map(Exit::Code))
    }

    /// Ends whatever is left of the group, then collects the child.
    fn reap(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        self.to_stdin = None;
        let exit = match self.child.wait() {
            Ok(status) => status.code().map_or_else(
                || Exit::Signal(std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0)),
                Exit::Code,
            ),
            // Only a stranger's wait for our child can cause this.
            Err(_) => Exit::Code(-1),
        };
        self.exit = Some(exit);
        self.guard = None;
        exit
    }
}

impl Drop for InteractiveChild {
    fn drop(&mut self) {
        self.reap();
    }
}

/// Quotes a word for a POSIX shell where it needs to be.
fn shell_word(word: &str) -> String {
    // The only word that cannot be quoted holds a NUL, which no argument can.
    shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), |quoted| quoted.into_owned())
}

/// A process that has only just begun has not allocated yet. Where no limit can be set there is none.
#[cfg(target_os = "linux")]
fn limit_memory(process: Pid, limit_bytes: Option<u64>) {
    if let Some(bytes) = limit_bytes {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        let _ = prlimit(Some(process), Resource::Data, limit);
    }
}

#[cfg(not(target_os = "linux"))]
fn limit_memory(_process: Pid, _limit_bytes: Option<u64>) {}

fn create_log(path: &Path) -> Result<File, ChildError> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| File::create(path));
    made.map_err(|source| ChildError::Log { path: path.to_owned(), source })
}

fn write_lines(mut stdin: ChildStdin, lines: &Receiver<Vec<u8>>) {
    while let Ok(line) = lines.recv() {
        if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn read_lines(stdout: ChildStdout, max_line_bytes: usize, heard: &SyncSender<Heard>) {
    let mut stdout = BufReader::with_capacity(1 << 16, stdout);
    let mut line = Vec::new();
    loop {
        let chunk = match stdout.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => &[],
        };
        if chunk.is_empty() {
            if !line.is_empty() {
                let _ = heard.send(Heard::Line(line));
            }
            let _ = heard.send(Heard::End);
            return;
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        if line.len() + taken > max_line_bytes {
            line.extend_from_slice(&chunk[..taken.min(HEAD_BYTES)]);
            line.truncate(HEAD_BYTES);
            let _ = heard.send(Heard::Overlong(line));
            return;
        }
        line.extend_from_slice(&chunk[..taken]);
        stdout.consume(end.map_or(taken, |at| at + 1));
        if end.is_some() && heard.send(Heard::Line(std::mem::take(&mut line))).is_err() {
            return;
        }
    }
}

fn keep_tail(mut stderr: impl Read, mut log: Option<File>, tail: &Mutex<VecDeque<String>>) {
    let mut buffer = [0_u8; 8_192];
    let mut logged = 0_u64;
    let mut line = Vec::new();
    loop {
        let read = match stderr.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => 0,
        };
        if read == 0 {
            break;
        }
        let chunk = &buffer[..read];
        if logged < LOG_BYTES
            && let Some(file) = &mut log
        {
            // A full disk costs the log, not the observation.
            logged = if file.write_all(chunk).is_ok() { logged + read as u64 } else { LOG_BYTES };
        }
        for &byte in chunk {
            if byte == b'\n' || byte == b'\r' {
                keep_line(&mut line, tail);
            } else if line.len() < KEPT_LINE_BYTES {
                line.push(byte);
            }
        }
    }
    keep_line(&mut line, tail);
}

fn keep_line(line: &mut Vec<u8>, tail: &Mutex<VecDeque<String>>) {
    if line.iter().all(u8::is_ascii_whitespace) {
        line.clear();
        return;
    }
    let text = printable(&String::from_utf8_lossy(line));
    line.clear();
    let mut tail = tail.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if tail.len() == KEPT_LINES {
        tail.pop_front();
    }
    tail.push_back(text);
}

/// The text with every control character but the tab escaped, so that a terminal obeys none of it.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Bidirectional overrides reorder what a person reads.
        let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() && c != '\t') || reorders {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::groups::tests::{gone_soon, lives};

    fn shell(script: &str) -> ChildSpec {
        ChildSpec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: BTreeMap::new(),
            stderr_log: None,
            max_line_bytes: 1_000,
            memory_limit_bytes: None,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn hear(child: &mut InteractiveChild) -> Heard {
        child.hear(soon(), &mut || {})
    }

    #[test]
    fn lines_go_in_and_come_out() {
        let mut child =
            InteractiveChild::start(&shell("while read x; do echo \"<$x>\"; done; exit 3")).unwrap();
        child.say("one");
        assert_eq!(hear(&mut child), Heard::Line(b"<one>".to_vec()));
        child.say("two");
        assert_eq!(hear(&mut child), Heard::Line(b"<two>".to_vec()));
        child.close_stdin();
        assert_eq!(hear(&mut child), Heard::End);
        assert_eq!(child.wait(soon()), Some(Exit::Code(3)));
    }

    #[test]
    fn a_large_line_to_a_child_that_does_not_read_blocks_nobody() {
        let mut child = InteractiveChild::start(&shell("sleep 0.2; echo here; sleep 60")).unwrap();
        child.say(&"x".repeat(1 << 20));
        assert_eq!(hear(&mut child), Heard::Line(b"here".to_vec()));
    }

    #[test]
    fn an_endless_line_is_cut_off() {
        let mut child = InteractiveChild::start(&shell("yes | tr -d '\\n'")).unwrap();
        let Heard::Overlong(head) = hear(&mut child) else { panic!("an endless line is overlong") };
        assert_eq!(head.len(), HEAD_BYTES);
        assert!(head.iter().all(|&byte| byte == b'y'));
        assert_eq!(hear(&mut child), Heard::End);
    }

    #[test]
    fn the_last_lines_of_stderr_are_kept_printable_and_logged() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("deep/err.log");
        let mut spec = shell(
            "i=0; while [ $i -lt 60 ]; do echo \"line $i\" >&2; i=$((i+1)); done; printf '\\033[31mred' >&2",
        );
        spec.stderr_log = Some(log.clone());
        let mut child = InteractiveChild::start(&spec).unwrap();
        assert_eq!(child.wait(soon()), Some(Exit::Code(0)));
        let lines = child.last_lines();
        assert_eq!(lines.len(), KEPT_LINES);
        assert_eq!(lines[0], "line 21");
        assert_eq!(lines[KEPT_LINES - 1], "\\u{1b}[31mred");
        assert!(std::fs::read_to_string(log).unwrap().starts_with("line 0\nline 1\n"));
    }

    #[test]
    fn a_child_that_ignores_sigterm_dies_with_its_grandchild() {
        let script =
            "trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $!; while :; do sleep 1; done";
        let mut child = InteractiveChild::start(&shell(script)).unwrap();
        let Heard::Line(line) = hear(&mut child) else { panic!("it says its grandchild's id") };
        let grandchild: i32 = String::from_utf8(line).unwrap().parse().unwrap();
        assert!(lives(grandchild));
        assert_eq!(child.end(Duration::from_millis(100)), Exit::Signal(9));
        assert!(gone_soon(grandchild));
    }

    #[test]
    fn a_grandchild_that_outlives_the_child_is_ended_and_delays_nothing() {
        let mut child = InteractiveChild::start(&shell("sleep 300 & echo $!; exit 0")).unwrap();
        let Heard::Line(line) = hear(&mut child) else { panic!("it says its grandchild's id") };
        let grandchild: i32 = String::from_utf8(line).unwrap().parse().unwrap();
        let began = Instant::now();
        assert_eq!(hear(&mut child), Heard::End);
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(child.wait(soon()), Some(Exit::Code(0)));
        assert!(gone_soon(grandchild));
    }

    #[test]
    fn dropping_ends_the_group() {
        let mut child = InteractiveChild::start(&shell("sleep 300 & echo $!; wait")).unwrap();
        let Heard::Line(line) = hear(&mut child) else { panic!("it says its grandchild's id") };
        let grandchild: i32 = String::from_utf8(line).unwrap().parse().unwrap();
        drop(child);
        assert!(gone_soon(grandchild));
    }

    #[test]
    fn a_missing_program_is_an_error_with_the_command() {
        let mut spec = shell("it's");
        spec.program = "/nowhere/to be found".into();
        spec.env.insert("A".into(), "b c".into());
        let error = InteractiveChild::start(&spec).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `A='b c' '/nowhere/to be found' -c \"it's\"`");
        assert!(error.hint().contains("not there"));
    }
}
