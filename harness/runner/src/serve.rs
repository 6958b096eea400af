//! Reads one request a line, answers with one response a line, and refuses what cannot be asked of the loaded model
//! before an engine sees it: MLX reads past the embedding table for an id that is out of range.

use std::io::{self, BufRead, Write};

use crate::{
    dialect::{Dialect, Model},
    op,
    protocol::{EngineError, EngineErrorKind, Numbered, Request, Response, Score},
    timing,
};

/// What a timed generation is followed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beside {
    /// Nothing.
    Nothing,
    /// The same generation by the bare loop, after the answer.
    Bare,
}

/// Answers requests until [`Request::Shutdown`] or the end of `input`. Fails only when a line can be neither read nor
/// written.
pub(crate) fn serve(
    dialect: impl Dialect,
    mut input: impl BufRead,
    mut output: impl Write,
    beside: Beside,
) -> io::Result<()> {
    let mut session = Session { dialect, loaded: None };
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let mut timed = None;
        let (id, body) = match parse(&line) {
            Ok(Numbered { id, body }) => {
                if let (Beside::Bare, Request::Time(request)) = (beside, &body) {
                    timing::rest();
                    timed = Some(request.clone());
                }
                (id, session.answer(body).unwrap_or_else(Response::Error))
            }
            Err((id, error)) => (id, Response::Error(error)),
        };
        let last = body == Response::Bye;
        let mut answer = serde_json::to_vec(&Numbered { id, body })?;
        answer.push(b'\n');
        output.write_all(&answer)?;
        output.flush()?;
        if last {
            return Ok(());
        }
        if let (Some(request), Some(loaded)) = (timed, &mut session.loaded) {
            timing::rest();
            timing::tell(&loaded.model.bare(&request));
        }
    }
}

/// An error that blames the request.
pub(crate) fn bad_request(message: impl Into<String>) -> EngineError {
    EngineError { kind: EngineErrorKind::BadRequest, message: message.into() }
}

struct Session<D: Dialect> {
    dialect: D,
    loaded: Option<LoadedModel<D::Model>>,
}

struct LoadedModel<M> {
    model: M,
    vocab_size: usize,
}

impl<D: Dialect> Session<D> {
    fn answer(&mut self, request: Request) -> Result<Response, EngineError> {
        Ok(match request {
            Request::Hello => Response::Hello(self.dialect.hello()?),
            Request::Load(request) => {
                // Two models need not fit at once.
                self.loaded = None;
                let (model, loaded) = self.dialect.load(&request)?;
                self.loaded = Some(LoadedModel { model, vocab_size: loaded.vocab_size });
                Response::Loaded(loaded)
            }
            Request::Tokenize(request) => Response::Tokens(self.loaded()?.model.tokenize(&request)?),
            Request::Detokenize { ids } => Response::Text { text: self.loaded()?.model.detokenize(&ids)? },
            Request::Generate(request) => {
                let loaded = self.loaded()?;
                check_prompt(&request.prompt_ids, loaded.vocab_size)?;
                Response::Generated(loaded.model.generate(&request)?)
            }
            Request::Score(request) => {
                let loaded = self.loaded()?;
                check_score(&request, loaded.vocab_size)?;
                Response::Scored(loaded.model.score(&request)?)
            }
            Request::Time(request) => {
                let loaded = self.loaded()?;
                check_prompt(&request.prompt_ids, loaded.vocab_size)?;
                if request.tokens == 0 {
                    return Err(bad_request("cannot time a generation of no ids"));
                }
                Response::Timed(loaded.model.time(&request)?)
            }
            Request::Op(request) => {
                op::check(&request.product)?;
                Response::OpDone(self.dialect.op(&request)?)
            }
            Request::Memory => Response::Memory(self.dialect.memory()?),
            Request::Shutdown => Response::Bye,
        })
    }

    fn loaded(&mut self) -> Result<&mut LoadedModel<D::Model>, EngineError> {
        self.loaded.as_mut().ok_or_else(|| bad_request("no model is loaded: send `load` first"))
    }
}

/// The request on `line`, or the error with the number that could still be read from it (0 where there is none).
fn parse(line: &[u8]) -> Result<Numbered<Request>, (u64, EngineError)> {
    serde_json::from_slice(line).map_err(|error| {
        let id = serde_json::from_slice::<serde_json::Value>(line)
            .ok()
            .and_then(|value| value.get("id")?.as_u64())
            .unwrap_or(0);
        (id, bad_request(format!("the line is not a request: {error}")))
    })
}

fn check_prompt(prompt_ids: &[u32], vocab_size: usize) -> Result<(), EngineError> {
    if prompt_ids.is_empty() {
        return Err(bad_request("cannot generate from an empty prompt"));
    }
    check_ids(prompt_ids, vocab_size)
}

fn check_score(request: &Score, vocab_size: usize) -> Result<(), EngineError> {
    let length = request.ids.len();
    if request.prefill_len == 0 || request.prefill_len > length {
        return Err(bad_request(format!(
            "cannot prefill {} of {length} ids: prefill_len must be 1 to the number of ids",
            request.prefill_len
        )));
    }
    if request.chunk == Some(0) {
        return Err(bad_request("a prefill cannot be cut into pieces of no ids"));
    }
    if let Some(warm) = request.warm.filter(|warm| *warm == 0 || warm + 1 >= request.prefill_len) {
        return Err(bad_request(format!(
            "a warm cache of {warm} ids and a decode step leave nothing of a prefill of {} ids, or hold nothing",
            request.prefill_len
        )));
    }
    if !request.positions.is_sorted_by(|left, right| left < right) {
        return Err(bad_request("positions must ascend without repeats"));
    }
    if let Some(position) = request.positions.last().filter(|position| **position >= length) {
        return Err(bad_request(format!("position {position} is not below the number of ids, {length}")));
    }
    check_ids(&request.ids, vocab_size)
}

fn check_ids(ids: &[u32], vocab_size: usize) -> Result<(), EngineError> {
    match ids.iter().position(|id| *id as usize >= vocab_size) {
        Some(at) => Err(bad_request(format!(
            "id {} at index {at} is outside the vocabulary of {vocab_size} ids",
            ids[at]
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        Device, Generate, Generated, Hello, History, Load, Loaded, LogitsDetail, Memory, Op, OpDone,
        Precision, Scored, Time, Timed, Tokenize, Tokens,
    };
    use crate::timing::Bare;

    /// Answers everything that reaches it with "failed", and loads a vocabulary of ten ids.
    struct Echo;

    fn reached<T>(what: &str) -> Result<T, EngineError> {
        Err(EngineError { kind: EngineErrorKind::Failed, message: format!("reached {what}") })
    }

    impl Dialect for Echo {
        type Model = Echo;
        fn hello(&self) -> Result<Hello, EngineError> {
            reached("hello")
        }
        fn load(&self, request: &Load) -> Result<(Echo, Loaded), EngineError> {
            let loaded = Loaded {
                model_type: "echo".into(),
                vocab_size: 10,
                eos_ids: vec![],
                tensors: 0,
                device: request.device,
                load_s: 0.0,
            };
            Ok((Echo, loaded))
        }
        fn op(&self, _: &Op) -> Result<OpDone, EngineError> {
            reached("op")
        }
        fn memory(&self) -> Result<Memory, EngineError> {
            reached("memory")
        }
    }

    impl Model for Echo {
        fn tokenize(&mut self, _: &Tokenize) -> Result<Tokens, EngineError> {
            reached("tokenize")
        }
        fn detokenize(&self, _: &[u32]) -> Result<String, EngineError> {
            reached("detokenize")
        }
        fn generate(&mut self, _: &Generate) -> Result<Generated, EngineError> {
            reached("generate")
        }
        fn score(&mut self, _: &Score) -> Result<Scored, EngineError> {
            reached("score")
        }
        fn time(&mut self, _: &Time) -> Result<Timed, EngineError> {
            reached("time")
        }
        fn bare(&mut self, _: &Time) -> Result<Bare, EngineError> {
            reached("bare")
        }
    }

    fn answers(lines: &[&str]) -> Vec<Numbered<Response>> {
        let mut output = Vec::new();
        serve(Echo, lines.join("\n").as_bytes(), &mut output, Beside::Bare).unwrap();
        output
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    fn refusal(answer: &Numbered<Response>) -> (u64, EngineErrorKind, &str) {
        match &answer.body {
            Response::Error(error) => (answer.id, error.kind, &error.message),
            other => panic!("not a refusal: {other:?}"),
        }
    }

    const LOAD: &str = r#"{"id":1,"op":"load","model_dir":"/m","precision":"source","device":"cpu"}"#;

    #[test]
    fn a_bad_line_is_refused_and_the_next_one_answered() {
        let answers = answers(&["not json", r#"{"id":7,"op":"fly"}"#, "", r#"{"id":8,"op":"hello"}"#]);
        let refusals = answers.iter().map(refusal).collect::<Vec<_>>();
        assert_eq!(
            refusals.iter().map(|(id, kind, _)| (*id, *kind)).collect::<Vec<_>>(),
            [
                (0, EngineErrorKind::BadRequest),
                (7, EngineErrorKind::BadRequest),
                (0, EngineErrorKind::BadRequest),
                (8, EngineErrorKind::Failed),
            ]
        );
        assert_eq!(refusals[3].2, "reached hello");
    }

    #[test]
    fn shutdown_is_answered_and_ends_the_session() {
        let answers = answers(&[r#"{"id":1,"op":"shutdown"}"#, r#"{"id":2,"op":"hello"}"#]);
        assert_eq!(answers, [Numbered { id: 1, body: Response::Bye }]);
    }

    #[test]
    fn nothing_is_asked_of_a_model_before_it_is_loaded() {
        for line in [
            r#"{"id":1,"op":"tokenize","input":"text","text":"a"}"#,
            r#"{"id":1,"op":"detokenize","ids":[1]}"#,
            r#"{"id":1,"op":"generate","prompt_ids":[1],"max_tokens":1,"stop_ids":[],"top_k":1}"#,
        ] {
            let answers = answers(&[line]);
            assert_eq!(refusal(&answers[0]).1, EngineErrorKind::BadRequest, "{line}");
        }
    }

    #[test]
    fn requests_that_no_model_can_answer_are_refused() {
        let score = |prefill: usize, ids: &str, positions: &str| {
            format!(
                r#"{{"id":2,"op":"score","ids":{ids},"prefill_len":{prefill},"positions":{positions},"top_k":1,"logits":"summary","history":"kept"}}"#
            )
        };
        let generate = |ids: &str| {
            format!(r#"{{"id":2,"op":"generate","prompt_ids":{ids},"max_tokens":1,"stop_ids":[],"top_k":1}}"#)
        };
        let time = |ids: &str, tokens: usize| {
            format!(r#"{{"id":2,"op":"time","prompt_ids":{ids},"tokens":{tokens}}}"#)
        };
        for (line, expected) in [
            (time("[]", 1), "cannot generate from an empty prompt"),
            (time("[10]", 1), "id 10 at index 0 is outside the vocabulary of 10 ids"),
            (time("[9]", 0), "cannot time a generation of no ids"),
            (time("[9]", 1), "reached time"),
            (generate("[]"), "cannot generate from an empty prompt"),
            (generate("[1,10]"), "id 10 at index 1 is outside the vocabulary of 10 ids"),
            (generate("[9]"), "reached generate"),
            (score(0, "[1]", "[0]"), "cannot prefill 0 of 1 ids: prefill_len must be 1 to the number of ids"),
            (score(2, "[1]", "[0]"), "cannot prefill 2 of 1 ids: prefill_len must be 1 to the number of ids"),
            (score(1, "[1,2]", "[1,0]"), "positions must ascend without repeats"),
            (score(1, "[1,2]", "[1,1]"), "positions must ascend without repeats"),
            (score(1, "[1,2]", "[2]"), "position 2 is not below the number of ids, 2"),
            (score(1, "[1,99]", "[1]"), "id 99 at index 1 is outside the vocabulary of 10 ids"),
            (score(1, "[1,2]", "[0,1]"), "reached score"),
            (
                score(1, "[1]", "[0]").replace("\"top_k\"", "\"chunk\":0,\"top_k\""),
                "a prefill cannot be cut into pieces of no ids",
            ),
            (
                score(2, "[1,2]", "[0]").replace("\"top_k\"", "\"warm\":1,\"top_k\""),
                "a warm cache of 1 ids and a decode step leave nothing of a prefill of 2 ids, or hold nothing",
            ),
        ] {
            let answers = answers(&[LOAD, &line]);
            assert_eq!(refusal(&answers[1]).2, expected, "{line}");
        }
    }

    #[test]
    fn requests_and_responses_survive_the_wire() {
        let requests = [
            Request::Hello,
            Request::Load(Load { model_dir: "/m".into(), precision: Precision::Source, device: Device::Gpu }),
            Request::Tokenize(Tokenize::Chat { user: "one\ntwo".into() }),
            Request::Detokenize { ids: vec![0, u32::MAX] },
            Request::Score(Score {
                ids: vec![1, 2],
                prefill_len: 1,
                positions: vec![0, 1],
                top_k: 3,
                logits: LogitsDetail::Full,
                history: History::Kept,
                chunk: Some(2),
                warm: None,
            }),
            Request::Shutdown,
        ];
        for (id, body) in (1..).zip(requests) {
            let sent = Numbered { id, body };
            let line = serde_json::to_string(&sent).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(parse(line.as_bytes()), Ok(sent));
        }
        let memory = Memory { device_peak_bytes: u64::MAX, process_peak_bytes: 1, ..Memory::default() };
        let sent = Numbered { id: u64::MAX, body: Response::Memory(memory) };
        let line = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Numbered<Response>>(&line).unwrap(), sent);
    }
}
