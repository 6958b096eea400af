//! A conversation with one engine process, from its start to a classified end. Whatever the process does, it becomes a
//! [`ProcessOutcome`]; what its answers are worth is for others to judge.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    build::Artifact,
    engine::{
        outcome::ProcessOutcome,
        protocol::{
            EngineErrorKind, Generate, Generated, Hello, Load, Loaded, Memory, Numbered, Op, OpDone,
            PROTOCOL_VERSION, Request, Response, Score, Scored, Time, Timed, Tokenize, Tokens,
        },
    },
    tools::{
        child::{ChildError, ChildSpec, Exit, Heard, InteractiveChild, printable},
        memory::MemoryWatch,
    },
};

/// Longest response line that is taken: twice what the harness ever asks for.
const MAX_LINE_BYTES: usize = 128 << 20;

/// How much of a garbled line is kept, in characters.
const GARBLED_CHARS: usize = 200;

/// How long a process may take to end once it has answered the shutdown.
const EXIT_GRACE: Duration = Duration::from_secs(20);

/// How long a process may take to end once it has refused something.
const REFUSED_GRACE: Duration = Duration::from_secs(5);

/// How long a process group may take to end on SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// The kind that a [`ProcessOutcome::Refused`] carries when the engine speaks another version of the protocol.
pub const WRONG_PROTOCOL: &str = "wrong-protocol";

/// How a session is run.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionOptions {
    /// How long the process may take for all requests together.
    pub timeout: Duration,
    /// Where its stderr is also written, if anywhere.
    pub stderr_log: Option<PathBuf>,
    /// How much memory the process may take for its data, if there is a limit: an allocation beyond it fails, as it would
    /// on a machine of that size.
    pub memory_limit_bytes: Option<u64>,
}

/// One engine process.
///
/// Every request returns `None` once the session is over: because the process ended, did not answer in time, printed
/// something else than an answer, or refused. [`Session::finish`] says which.
#[derive(Debug)]
pub struct Session {
    child: InteractiveChild,
    command: String,
    watch: MemoryWatch,
    timeout: Duration,
    /// Since when the time counts.
    since: Instant,
    memory_limit_bytes: Option<u64>,
    started: Instant,
    last_id: u64,
    load_s: Option<f64>,
    over: Option<ProcessOutcome>,
}

impl Session {
    /// Starts the artifact's program. An error means that it could not be started at all.
    pub fn start(artifact: &Artifact, options: &SessionOptions) -> Result<Self, ChildError> {
        let spec = ChildSpec {
            program: artifact.program.clone(),
            args: artifact.args.clone(),
            env: artifact.env.clone(),
            stderr_log: options.stderr_log.clone(),
            max_line_bytes: MAX_LINE_BYTES,
            memory_limit_bytes: options.memory_limit_bytes,
        };
        Ok(Self {
            child: InteractiveChild::start(&spec)?,
            command: spec.command_line(),
            watch: MemoryWatch::begin(),
            timeout: options.timeout,
            since: Instant::now(),
            memory_limit_bytes: options.memory_limit_bytes,
            started: Instant::now(),
            last_id: 0,
            load_s: None,
            over: None,
        })
    }

    /// The command line, as one could paste it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// The process's number, by which the system's tools know it.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// How long the process has lived.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Gives all requests from now on together so much time, whatever those before them took.
    pub fn renew(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.since = Instant::now();
    }

    /// Asks who the engine is; an engine of another protocol version is refused here.
    pub fn hello(&mut self) -> Option<Hello> {
        let hello = self.ask(&Request::Hello, |response| match response {
            Response::Hello(hello) => Ok(hello),
            other => Err(other),
        })?;
        if hello.protocol == PROTOCOL_VERSION {
            return Some(hello);
        }
        self.over = Some(ProcessOutcome::Refused {
            kind: WRONG_PROTOCOL.into(),
            message: format!(
                "the engine speaks protocol {}, the harness speaks {PROTOCOL_VERSION}: build it again",
                hello.protocol
            ),
        });
        None
    }

    /// Loads a model folder.
    pub fn load(&mut self, load: &Load) -> Option<Loaded> {
        let loaded = self.ask(&Request::Load(load.clone()), |response| match response {
            Response::Loaded(loaded) => Ok(loaded),
            other => Err(other),
        })?;
        self.load_s = Some(loaded.load_s);
        Some(loaded)
    }

    /// How long the model took to load by the engine's own account, once one is loaded.
    pub fn load_s(&self) -> Option<f64> {
        self.load_s
    }

    /// Turns text or a chat into ids.
    pub fn tokenize(&mut self, input: &Tokenize) -> Option<Tokens> {
        self.ask(&Request::Tokenize(input.clone()), |response| match response {
            Response::Tokens(tokens) => Ok(tokens),
            other => Err(other),
        })
    }

    /// Turns ids into text.
    pub fn detokenize(&mut self, ids: &[u32]) -> Option<String> {
        self.ask(&Request::Detokenize { ids: ids.to_vec() }, |response| match response {
            Response::Text { text } => Ok(text),
            other => Err(other),
        })
    }

    /// Generates.
    pub fn generate(&mut self, generate: &Generate) -> Option<Generated> {
        self.ask(&Request::Generate(generate.clone()), |response| match response {
            Response::Generated(generated) => Ok(generated),
            other => Err(other),
        })
    }

    /// Scores.
    pub fn score(&mut self, score: &Score) -> Option<Scored> {
        self.ask(&Request::Score(score.clone()), |response| match response {
            Response::Scored(scored) => Ok(scored),
            other => Err(other),
        })
    }

    /// Generates by the library's own loop, with the time of every id.
    pub fn time(&mut self, time: &Time) -> Option<Timed> {
        self.ask(&Request::Time(time.clone()), |response| match response {
            Response::Timed(timed) => Ok(timed),
            other => Err(other),
        })
    }

    /// Computes a product and compares it with its second formulation.
    pub fn op(&mut self, op: &Op) -> Option<OpDone> {
        self.ask(&Request::Op(op.clone()), |response| match response {
            Response::OpDone(done) => Ok(done),
            other => Err(other),
        })
    }

    /// Asks for the memory figures.
    pub fn memory(&mut self) -> Option<Memory> {
        self.ask(&Request::Memory, |response| match response {
            Response::Memory(memory) => Ok(memory),
            other => Err(other),
        })
    }

    /// Shuts the engine down if it still lives and says how it ended. No process of its group is left.
    pub fn finish(mut self) -> ProcessOutcome {
        let answered_all = self.over.is_none();
        self.ask(&Request::Shutdown, |response| match response {
            Response::Bye => Ok(()),
            other => Err(other),
        });
        self.child.close_stdin();
        // Nothing but the leave-taking was left to say: what was measured stands, however the process went.
        if answered_all
            && let Some(ProcessOutcome::Crashed { code, signal, last_lines }) = self.over.take_if(is_crash)
        {
            return ProcessOutcome::AbortAtExit { code, signal, last_lines };
        }
        match self.over.take() {
            None => {
                let exit = self.child.wait(Instant::now() + EXIT_GRACE);
                let late = exit.is_none();
                let exit = exit.unwrap_or_else(|| self.child.end(TERM_GRACE));
                if exit == Exit::Code(0) && !late {
                    return ProcessOutcome::Clean;
                }
                let mut last_lines = self.child.last_lines();
                if late {
                    let grace = EXIT_GRACE.as_secs();
                    last_lines
                        .push(format!("(it had not ended {grace} s after its last answer, and was ended)"));
                }
                ProcessOutcome::AbortAtExit { code: exit.code(), signal: exit.signal(), last_lines }
            }
            Some(outcome) => {
                // An engine that refused may still be alive and well; it is given the time to end in its own way.
                if self.child.wait(Instant::now() + REFUSED_GRACE).is_none() {
                    self.child.end(TERM_GRACE);
                }
                outcome
            }
        }
    }

    /// Sends a request and takes the response that `pick` wants.
    fn ask<T>(&mut self, request: &Request, pick: impl Fn(Response) -> Result<T, Response>) -> Option<T> {
        if self.over.is_some() {
            return None;
        }
        self.last_id += 1;
        let line = serde_json::to_string(&Numbered { id: self.last_id, body: request })
            .expect("a request holds nothing that JSON cannot");
        self.child.say(&line);
        let deadline = self.since + self.timeout;
        let watch = &mut self.watch;
        let outcome = match self.child.hear(deadline, &mut || watch.sample()) {
            Heard::Line(line) => match serde_json::from_slice::<Numbered<Response>>(&line) {
                Ok(Numbered { body: Response::Error(error), .. }) => {
                    let out_of_memory = error.kind == EngineErrorKind::OutOfMemory
                        || (error.kind == EngineErrorKind::Failed && speaks_of_memory(&error.message));
                    let message = printable(&error.message);
                    if speaks_of_watchdog(&message) {
                        ProcessOutcome::Watchdog { message }
                    } else if out_of_memory {
                        ProcessOutcome::OutOfMemory { message }
                    } else {
                        ProcessOutcome::Refused { kind: kind_name(error.kind), message }
                    }
                }
                Ok(Numbered { id, body }) if id == self.last_id => match pick(body) {
                    Ok(answer) => return Some(answer),
                    Err(_) => self.garbled(&line),
                },
                _ => self.garbled(&line),
            },
            Heard::Overlong(head) => self.garbled(&head),
            Heard::End => match self.child.wait(deadline) {
                Some(exit) => {
                    let sign = self.watch.exhaustion();
                    under_limit(exit, self.memory_limit_bytes)
                        .unwrap_or_else(|| outcome_of_death(exit, self.child.last_lines(), sign.as_deref()))
                }
                None => self.timed_out(),
            },
            Heard::TimedOut => self.timed_out(),
        };
        self.over = Some(outcome);
        None
    }

    fn garbled(&mut self, line: &[u8]) -> ProcessOutcome {
        self.child.end(TERM_GRACE);
        ProcessOutcome::Garbled { line: shortened(line) }
    }

    fn timed_out(&mut self) -> ProcessOutcome {
        self.child.end(TERM_GRACE);
        ProcessOutcome::TimedOut { after_s: self.timeout.as_secs_f64(), last_lines: self.child.last_lines() }
    }
}

fn is_crash(outcome: &mut ProcessOutcome) -> bool {
    matches!(outcome, ProcessOutcome::Crashed { .. })
}

/// What it means that a process ended before it had answered, given its last lines and the sign by which the machine's
/// memory had run out, if there was one.
pub fn outcome_of_death(exit: Exit, last_lines: Vec<String>, exhaustion: Option<&str>) -> ProcessOutcome {
    // A shell in between turns the signal into a code of 128 and more.
    let killed = matches!(exit, Exit::Signal(9) | Exit::Code(137));
    if let (true, Some(sign)) = (killed, exhaustion) {
        return ProcessOutcome::OutOfMemory { message: format!("ended by SIGKILL, and {sign}") };
    }
    if let Some(line) = last_lines.iter().rev().find(|line| speaks_of_watchdog(line)) {
        return ProcessOutcome::Watchdog { message: format!("ended after saying: {line}") };
    }
    if let Some(line) = last_lines.iter().rev().find(|line| speaks_of_memory(line)) {
        return ProcessOutcome::OutOfMemory { message: format!("ended after saying: {line}") };
    }
    ProcessOutcome::Crashed { code: exit.code(), signal: exit.signal(), last_lines }
}

/// What it means that a process died of an access to memory, or aborted, under a limit of memory: MLX's CPU allocator writes
/// to what a failed allocation returned. Only cells that are there to run out of memory have a limit, and the cell beside
/// them, whose prompt goes in by pieces, shows whether the build crashes anyway.
fn under_limit(exit: Exit, limit_bytes: Option<u64>) -> Option<ProcessOutcome> {
    let (bytes, signal) = (limit_bytes?, exit.signal()?);
    matches!(signal, 6 | 7 | 11).then(|| ProcessOutcome::OutOfMemory {
        message: format!("ended by signal {signal} under a limit of {} MiB of memory", bytes >> 20),
    })
}

/// Whether a message is how MLX, CUDA, C++, Rust or Python say that memory ran out.
fn speaks_of_memory(message: &str) -> bool {
    let message = message.to_lowercase();
    let allocation_failed = message.contains("memory allocation of") && message.contains("failed");
    allocation_failed
        || ["out of memory", "bad_alloc", "memoryerror", "unable to allocate", "cudaerrormemoryallocation"]
            .iter()
            .any(|words| message.contains(words))
}

/// Whether a message is how Metal or CUDA say that the system ended work on a device that took too long.
fn speaks_of_watchdog(message: &str) -> bool {
    let message = message.to_lowercase();
    ["gpu timeout", "impacting interactivity", "callbackerrortimeout", "launch timed out", "launchtimeout"]
        .iter()
        .any(|words| message.contains(words))
}

/// The protocol's own word for a kind of refusal.
fn kind_name(kind: EngineErrorKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => unreachable!("a unit variant is a JSON string"),
    }
}

fn shortened(line: &[u8]) -> String {
    // A character is at most four bytes, so that this prefix holds as many as are kept.
    let head = &line[..line.len().min(4 * GARBLED_CHARS)];
    let escaped = printable(&String::from_utf8_lossy(head));
    escaped.chars().take(GARBLED_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::{
        build::Provenance,
        engine::protocol::{
            Device, EngineError, Finish, History, LogitsDetail, Phase, Precision, Product, ScoredPosition,
            TopToken,
        },
    };

    /// An engine that is a shell script: a test double with a script for each way of ending.
    fn engine(script: &str) -> Artifact {
        Artifact {
            name: "double".into(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: BTreeMap::new(),
            provenance: Provenance { digest: String::new(), inputs: Value::Null, log: Value::Null },
        }
    }

    fn start(script: &str, timeout_ms: u64) -> Session {
        let options = SessionOptions {
            timeout: Duration::from_millis(timeout_ms),
            stderr_log: None,
            memory_limit_bytes: None,
        };
        Session::start(&engine(script), &options).unwrap()
    }

    const HELLO: &str = r#"read l; echo '{"id":1,"result":"hello","protocol":1,"engine":"e","version":"1","mlx_version":"0","dialect":"d"}'; "#;
    const MEMORY: &str =
        r#"read l; echo '{"id":2,"result":"memory","device_peak_bytes":1,"process_peak_bytes":2}'; "#;
    const BYE: &str = r#"read l; echo '{"id":3,"result":"bye"}'; "#;

    /// Says hello, asks for memory and finishes.
    fn talk(script: &str, timeout_ms: u64) -> (Option<Memory>, ProcessOutcome) {
        let mut session = start(script, timeout_ms);
        let memory = session.hello().and_then(|_| session.memory());
        (memory, session.finish())
    }

    #[test]
    fn every_way_of_ending_has_its_class() {
        let full = format!("{HELLO}{MEMORY}{BYE}");
        let lines = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for (script, answered, expected) in [
            (full.clone(), true, ProcessOutcome::Clean),
            (
                format!("{full} echo driver shutting down >&2; exit 134"),
                true,
                ProcessOutcome::AbortAtExit {
                    code: Some(134),
                    signal: None,
                    last_lines: lines(&["driver shutting down"]),
                },
            ),
            (
                format!("{full} kill -ABRT $$"),
                true,
                ProcessOutcome::AbortAtExit { code: None, signal: Some(6), last_lines: vec![] },
            ),
            (
                format!("{HELLO}{MEMORY}read l; echo driver shutting down >&2; kill -ABRT $$"),
                true,
                ProcessOutcome::AbortAtExit {
                    code: None,
                    signal: Some(6),
                    last_lines: lines(&["driver shutting down"]),
                },
            ),
            (
                format!("{HELLO}read l; echo first >&2; echo second >&2; kill -SEGV $$"),
                false,
                ProcessOutcome::Crashed {
                    code: None,
                    signal: Some(11),
                    last_lines: lines(&["first", "second"]),
                },
            ),
            (
                "exit 127".into(),
                false,
                ProcessOutcome::Crashed { code: Some(127), signal: None, last_lines: vec![] },
            ),
            (
                format!("{HELLO}read l; echo \"terminate called: std::bad_alloc\" >&2; kill -ABRT $$"),
                false,
                ProcessOutcome::OutOfMemory {
                    message: "ended after saying: terminate called: std::bad_alloc".into(),
                },
            ),
            (
                format!(
                    "{HELLO}read l; echo '{{\"id\":2,\"result\":\"error\",\"kind\":\"out-of-memory\",\"message\":\"no room for 8 GB\"}}'; cat >/dev/null"
                ),
                false,
                ProcessOutcome::OutOfMemory { message: "no room for 8 GB".into() },
            ),
            (
                format!(
                    "{HELLO}read l; echo '{{\"id\":2,\"result\":\"error\",\"kind\":\"no-template\",\"message\":\"none here\"}}'; cat >/dev/null"
                ),
                false,
                ProcessOutcome::Refused { kind: "no-template".into(), message: "none here".into() },
            ),
            (
                format!("{HELLO}read l; printf 'Loading\\033[2J weights\\n'; cat >/dev/null"),
                false,
                ProcessOutcome::Garbled { line: "Loading\\u{1b}[2J weights".into() },
            ),
            // The right answer to another request.
            (
                format!("{HELLO}read l; echo '{{\"id\":1,\"result\":\"bye\"}}'; cat >/dev/null"),
                false,
                ProcessOutcome::Garbled { line: "{\"id\":1,\"result\":\"bye\"}".into() },
            ),
            (
                format!("{HELLO}read l; echo '{{\"id\":2,\"result\":\"bye\"}}'; cat >/dev/null"),
                false,
                ProcessOutcome::Garbled { line: "{\"id\":2,\"result\":\"bye\"}".into() },
            ),
        ] {
            let (memory, outcome) = talk(&script, 20_000);
            assert_eq!(outcome, expected, "{script}");
            assert_eq!(memory.is_some(), answered, "{script}");
        }
    }

    #[test]
    fn an_endless_line_is_garbled_and_takes_no_memory() {
        let (_, outcome) = talk(&format!("{HELLO}read l; yes | tr -d '\\n'"), 60_000);
        assert_eq!(outcome, ProcessOutcome::Garbled { line: "y".repeat(GARBLED_CHARS) });
    }

    #[test]
    fn a_hang_times_out_and_its_whole_group_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!(
            "{HELLO}read l; trap '' TERM; (trap '' TERM; while :; do sleep 1; done) & echo $! $$ > {}; echo waiting >&2; while :; do sleep 1; done",
            pids.display()
        );
        let began = Instant::now();
        let (_, outcome) = talk(&script, 2_500);
        assert_eq!(outcome, ProcessOutcome::TimedOut { after_s: 2.5, last_lines: vec!["waiting".into()] });
        assert!(began.elapsed() < Duration::from_secs(10));
        for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
            let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
            let gone = (0..100).any(|_| {
                std::thread::sleep(Duration::from_millis(20));
                rustix::process::test_kill_process(pid).is_err()
                    || std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
                        .is_ok_and(|stat| stat.contains(") Z "))
            });
            assert!(gone, "process {pid:?} of the group still lives");
        }
    }

    #[test]
    fn time_that_is_renewed_counts_anew() {
        let slow_memory = format!("{HELLO}sleep 1.2; {MEMORY}sleep 1.2; {BYE}");
        let (memory, outcome) = talk(&slow_memory, 2000);
        assert!(memory.is_some());
        assert!(matches!(outcome, ProcessOutcome::TimedOut { .. }), "{outcome:?}");

        let mut session = start(&slow_memory, 2000);
        session.hello();
        let memory = session.memory();
        session.renew(Duration::from_secs(20));
        assert_eq!((memory.is_some(), session.finish()), (true, ProcessOutcome::Clean));
    }

    #[test]
    fn another_protocol_version_is_refused() {
        let script = HELLO.replace("\"protocol\":1", "\"protocol\":7") + "cat >/dev/null";
        let (_, outcome) = talk(&script, 20_000);
        assert_eq!(
            outcome,
            ProcessOutcome::Refused {
                kind: WRONG_PROTOCOL.into(),
                message: "the engine speaks protocol 7, the harness speaks 1: build it again".into()
            }
        );
    }

    #[test]
    fn a_program_that_cannot_start_is_an_error() {
        let mut artifact = engine("");
        artifact.program = "/nowhere/engine".into();
        let options =
            SessionOptions { timeout: Duration::from_secs(1), stderr_log: None, memory_limit_bytes: None };
        let error = Session::start(&artifact, &options).unwrap_err();
        assert_eq!(error.to_string(), "cannot start `/nowhere/engine -c ''`");
    }

    #[test]
    fn an_access_to_nothing_is_out_of_memory_only_under_a_limit() {
        assert_eq!(under_limit(Exit::Signal(11), None), None);
        assert_eq!(under_limit(Exit::Code(1), Some(1 << 30)), None);
        let message = "ended by signal 11 under a limit of 1024 MiB of memory".to_owned();
        assert_eq!(
            under_limit(Exit::Signal(11), Some(1 << 30)),
            Some(ProcessOutcome::OutOfMemory { message })
        );
    }

    #[test]
    fn a_device_that_was_taken_away_is_a_watchdogs_work() {
        let line = "[METAL] Command buffer execution failed: Caused GPU Timeout Error".to_owned();
        let message = format!("ended after saying: {line}");
        assert_eq!(outcome_of_death(Exit::Signal(6), vec![line], None), ProcessOutcome::Watchdog { message });
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_limit_of_memory_reaches_the_process() {
        let script = format!("{HELLO}read l; ulimit -d >&2; exit 3");
        let options = SessionOptions {
            timeout: Duration::from_secs(20),
            stderr_log: None,
            memory_limit_bytes: Some(1 << 30),
        };
        let mut session = Session::start(&engine(&script), &options).unwrap();
        session.hello();
        session.memory();
        let ProcessOutcome::Crashed { last_lines, .. } = session.finish() else { panic!("it exits with 3") };
        assert_eq!(last_lines, ["1048576"]);
    }

    #[test]
    fn sigkill_is_out_of_memory_only_with_a_sign() {
        let crashed = ProcessOutcome::Crashed { code: None, signal: Some(9), last_lines: vec![] };
        assert_eq!(outcome_of_death(Exit::Signal(9), vec![], None), crashed);
        let message = "ended by SIGKILL, and the count rose".to_owned();
        assert_eq!(
            outcome_of_death(Exit::Signal(9), vec![], Some("the count rose")),
            ProcessOutcome::OutOfMemory { message }
        );
        // Memory was tight, and the process died of something else.
        let crashed = ProcessOutcome::Crashed { code: None, signal: Some(11), last_lines: vec![] };
        assert_eq!(outcome_of_death(Exit::Signal(11), vec![], Some("the count rose")), crashed);
    }

    #[test]
    fn a_garbled_line_is_cut_by_characters() {
        assert_eq!(shortened("é".repeat(500).as_bytes()), "é".repeat(200));
        assert_eq!(shortened(b"\xff\x00"), "\u{fffd}\\u{0}");
    }

    #[test]
    fn every_line_of_the_protocol_survives_a_round_trip() {
        let requests = [
            Request::Hello,
            Request::Load(Load { model_dir: "/m".into(), precision: Precision::Source, device: Device::Gpu }),
            Request::Tokenize(Tokenize::Text { text: "a\n\u{0}".into() }),
            Request::Tokenize(Tokenize::Chat { user: "hi".into() }),
            Request::Detokenize { ids: vec![1, u32::MAX] },
            Request::Generate(Generate { prompt_ids: vec![1], max_tokens: 2, stop_ids: vec![], top_k: 3 }),
            Request::Score(Score {
                ids: vec![1, 2],
                prefill_len: 1,
                positions: vec![0, 1],
                top_k: 1,
                logits: LogitsDetail::Full,
                history: History::None,
                chunk: Some(7),
                warm: Some(1),
            }),
            Request::Op(Op {
                device: Device::Cpu,
                product: Product::Concatenate { pieces: 2, rows: 3, width: 4 },
            }),
            Request::Memory,
            Request::Shutdown,
        ];
        for (id, body) in (1_u64..).zip(requests) {
            let sent = Numbered { id, body };
            let line = serde_json::to_string(&sent).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Numbered<Request>>(&line).unwrap(), sent);
        }
        let top = vec![TopToken { id: 4, logprob: -0.125 }];
        let row = |logits_f32: Option<String>| ScoredPosition {
            position: 0,
            phase: Phase::Prefill,
            non_finite: 0,
            next_logprob: None,
            top: top.clone(),
            logits_f32,
        };
        let responses = [
            Response::Hello(Hello {
                protocol: 1,
                engine: "e".into(),
                version: "1".into(),
                mlx_version: "2".into(),
                dialect: "d".into(),
            }),
            Response::Loaded(Loaded {
                model_type: "qwen3".into(),
                vocab_size: 9,
                eos_ids: vec![1],
                tensors: 3,
                device: Device::Cpu,
                load_s: 0.5,
            }),
            Response::Tokens(Tokens { ids: vec![1], rendered: "x".into() }),
            Response::Text { text: String::new() },
            Response::Generated(Generated {
                ids: vec![4],
                text: "t".into(),
                finish: Finish::Length,
                ttft_s: 0.1,
                token_times_s: vec![],
                top: vec![top.clone()],
            }),
            Response::Scored(Scored {
                positions: vec![row(None), row(Some("AAAA".into()))],
                prefill_s: 1.0,
                decode_s: 0.0,
                held_bytes: Some(1),
                peak_bytes: None,
            }),
            Response::OpDone(OpDone {
                device: Device::Cpu,
                rows: 6,
                checked_rows: 6,
                non_finite: 0,
                max_error: 0.0,
                worst_row: 0,
                took_s: 0.5,
            }),
            Response::Memory(Memory { device_peak_bytes: 1, process_peak_bytes: 2, ..Memory::default() }),
            Response::Bye,
            Response::Error(EngineError { kind: EngineErrorKind::BadModel, message: "m".into() }),
        ];
        for (id, body) in (1_u64..).zip(responses) {
            let sent = Numbered { id, body };
            let line = serde_json::to_string(&sent).unwrap();
            assert_eq!(serde_json::from_str::<Numbered<Response>>(&line).unwrap(), sent);
        }
    }

    #[test]
    fn the_lines_on_the_wire_are_as_documented() {
        let request = Numbered { id: 3, body: Request::Tokenize(Tokenize::Chat { user: "hi".into() }) };
        insta::assert_snapshot!(
            serde_json::to_string(&request).unwrap(),
            @r#"{"id":3,"op":"tokenize","input":"chat","user":"hi"}"#
        );
        let response = Numbered {
            id: 4,
            body: Response::Error(EngineError { kind: EngineErrorKind::NoTemplate, message: "m".into() }),
        };
        insta::assert_snapshot!(
            serde_json::to_string(&response).unwrap(),
            @r#"{"id":4,"result":"error","kind":"no-template","message":"m"}"#
        );
    }
}
