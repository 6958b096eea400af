//! A program that stays and answers, one request after the other: requests and answers are bytes, and every wait for an
//! answer has an end. Programs that are run once go through `tools::process`, engines through `tools::child`.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use super::{
    groups::GroupGuard,
    process::{Invocation, ProcessError},
};

/// How much of stderr a failure shows, in bytes.
const TAIL_BYTES: usize = 16 * 1024;
/// How much of stdout is taken at once, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;
/// How often, and how long each time, a program that stopped answering may take to end.
const GRACE_STEPS: u32 = 50;
const GRACE_STEP: Duration = Duration::from_millis(10);

/// A running program that answers requests. It is ended, with whatever it started, when this is dropped.
#[derive(Debug)]
pub struct Conversation {
    command: String,
    timeout: Duration,
    child: Child,
    guard: GroupGuard,
    stdin: Option<ChildStdin>,
    chunks: Receiver<Vec<u8>>,
    heard: Vec<u8>,
    read: usize,
    stderr: File,
}

impl Conversation {
    /// Starts the program. No answer may take longer than `timeout`; the invocation's own timeout, log and stdin do
    /// not count.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(invocation: &Invocation, timeout: Duration) -> Result<Self, ProcessError> {
        let command = invocation.shell_line();
        let failed = |source| ProcessError::Start { command: command.clone(), source };
        let stderr = tempfile::tempfile().map_err(failed)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the door: duct keeps no pipe open in both directions"
        )]
        let mut program = std::process::Command::new(&invocation.program);
        program.args(&invocation.args);
        for name in invocation.env_remove.iter().filter(|name| !invocation.env.contains_key(*name)) {
            program.env_remove(name);
        }
        if let Some(dir) = &invocation.cwd {
            program.current_dir(dir);
        }
        let mut child = program
            .envs(&invocation.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let guard = GroupGuard::new(child.id());
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("stdout is a pipe");
        let (heard, chunks) = mpsc::channel();
        // Whatever the program says is taken at once, so that neither side ever waits for the other to read.
        thread::spawn(move || {
            let mut buffer = vec![0; CHUNK_BYTES];
            while let Ok(length @ 1..) = stdout.read(&mut buffer) {
                if heard.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { command, timeout, child, guard, stdin, chunks, heard: Vec::new(), read: 0, stderr })
    }

    /// Hands it a request.
    ///
    /// # Errors
    /// When it has ended.
    pub fn say(&mut self, request: &[u8]) -> Result<(), ProcessError> {
        let written = match &mut self.stdin {
            Some(stdin) => stdin.write_all(request).and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|_| self.ended())
    }

    /// The next bytes that it says up to the byte `end`, which is left out.
    ///
    /// # Errors
    /// When it ends, or says nothing for too long.
    pub fn hear_until(&mut self, end: u8) -> Result<Vec<u8>, ProcessError> {
        let mut looked_at = self.read;
        loop {
            if let Some(at) = self.heard[looked_at..].iter().position(|&byte| byte == end) {
                let said = self.heard[self.read..looked_at + at].to_vec();
                self.read = looked_at + at + 1;
                return Ok(said);
            }
            looked_at = self.heard.len() - self.read;
            self.heard.drain(..self.read);
            self.read = 0;
            match self.chunks.recv_timeout(self.timeout) {
                Ok(chunk) => self.heard.extend(chunk),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => {
                    self.guard.kill();
                    return Err(ProcessError::TimedOut {
                        command: self.command.clone(),
                        timeout: self.timeout,
                        stderr_tail: self.stderr_tail(),
                        log: None::<PathBuf>,
                    });
                }
            }
        }
    }

    fn ended(&mut self) -> ProcessError {
        self.stdin = None;
        for _ in 0..GRACE_STEPS {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(GRACE_STEP),
                _ => break,
            }
        }
        self.reap();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let stderr_tail = self.stderr_tail();
        ProcessError::Failed { command: self.command.clone(), status, stderr_tail, log: None }
    }

    /// Ends the group unless it is over: the number of one that is may be a stranger's by now.
    fn reap(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.guard.kill();
            let _ = self.child.wait();
        }
    }

    fn stderr_tail(&mut self) -> String {
        let mut bytes = Vec::new();
        if self.stderr.rewind().is_ok() {
            // What cannot be read is missing from a message, nothing more.
            let _ = self.stderr.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.stdin = None;
        self.reap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout: Duration) -> Conversation {
        Conversation::start(&Invocation::new("sh").args(["-c", script]), timeout).unwrap()
    }

    #[test]
    fn answers_come_back_in_order_and_whole() {
        let mut echo = shell("exec cat", Duration::from_secs(20));
        let long = "x".repeat(200_000);
        echo.say(format!("one\0two\0{long}\0").as_bytes()).unwrap();
        echo.say(b"\0last\0").unwrap();
        for expected in ["one", "two", &long, "", "last"] {
            assert_eq!(echo.hear_until(0).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn an_end_and_a_long_silence_are_told_apart() {
        let mut ends = shell("echo broken >&2; exit 3", Duration::from_secs(20));
        let error = ends.hear_until(0).unwrap_err();
        assert!(matches!(&error, ProcessError::Failed { status, .. } if status.ends_with('3')), "{error}");
        assert!(error.to_string().contains("broken"), "{error}");
        assert!(ends.say(b"x").is_err());
        let error = shell("exec sleep 30", Duration::from_millis(50)).hear_until(0).unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
    }
}
