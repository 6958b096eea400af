//! Greedy generation and teacher-forced scoring, written once over the one thing that a dialect must offer: run a
//! prompt and hand out each row of logits in turn. Times leave out the work on the rows that only the report needs.

use std::time::{Duration, Instant};

use crate::{
    logits, mlx,
    protocol::{
        EngineError, Finish, Generate, History, LogitsDetail, Phase, Score, Scored, ScoredPosition, TopToken,
    },
    serve::bad_request,
};

/// What to do after a row of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Run one decode step on this id.
    Feed(u32),
    /// No further row is wanted.
    Stop,
}

/// Runs a model and shows its logits.
pub(crate) trait Rows {
    /// Runs the pieces of a prompt, one prefill each, on one fresh cache, then one decode step on the same cache for every
    /// id that `choose` feeds back. `choose` sees each evaluated row, first those of the pieces: whatever it says after a
    /// piece that is not the last, the next piece follows.
    fn run(&mut self, pieces: &[&[u32]], choose: &mut dyn FnMut(&[f32]) -> Next) -> Result<(), EngineError>;
}

/// The pieces of a scoring's prefill: for a warm cache an earlier request with its one decode step, then whatever is left,
/// cut to the wanted length.
fn pieces(request: &Score) -> Vec<&[u32]> {
    let prompt = &request.ids[..request.prefill_len];
    let (mut pieces, rest) = match request.warm {
        Some(warm) => (vec![&prompt[..warm], &prompt[warm..=warm]], &prompt[warm + 1..]),
        None => (Vec::new(), prompt),
    };
    pieces.extend(rest.chunks(request.chunk.unwrap_or(rest.len()).max(1)));
    pieces
}

/// A generation whose ids are not yet text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Steps {
    /// As in [`crate::protocol::Generated`].
    pub(crate) ids: Vec<u32>,
    /// As in [`crate::protocol::Generated`].
    pub(crate) finish: Finish,
    /// Time to the first choice, a stop id included.
    pub(crate) ttft_s: f64,
    /// As in [`crate::protocol::Generated`].
    pub(crate) token_times_s: Vec<f64>,
    /// As in [`crate::protocol::Generated`].
    pub(crate) top: Vec<Vec<TopToken>>,
}

/// Generates greedily; `max_tokens` of 0 runs nothing.
pub(crate) fn generate(rows: &mut impl Rows, request: &Generate) -> Result<Steps, EngineError> {
    let mut steps = Steps {
        ids: Vec::new(),
        finish: Finish::Length,
        ttft_s: 0.0,
        token_times_s: Vec::new(),
        top: Vec::new(),
    };
    if request.max_tokens == 0 {
        return Ok(steps);
    }
    let mut resumed = Instant::now();
    let mut first = true;
    rows.run(&[&request.prompt_ids], &mut |row| {
        let id = logits::argmax(row);
        let took_s = resumed.elapsed().as_secs_f64();
        let stop = request.stop_ids.contains(&id);
        if std::mem::take(&mut first) {
            steps.ttft_s = took_s;
        } else if !stop {
            steps.token_times_s.push(took_s);
        }
        if stop {
            steps.finish = Finish::Stop;
            return Next::Stop;
        }
        steps.ids.push(id);
        steps.top.push(logits::top_k(row, request.top_k));
        resumed = Instant::now();
        if steps.ids.len() == request.max_tokens { Next::Stop } else { Next::Feed(id) }
    })?;
    Ok(steps)
}

/// Scores the given ids: one prefill, one decode step an id after it, and one prefill of its own for every chosen
/// position inside the prefill. `prefill_s` and `decode_s` time the first two. [`History::None`] is refused.
pub(crate) fn score(rows: &mut impl Rows, request: &Score) -> Result<Scored, EngineError> {
    if request.history == History::None {
        return Err(bad_request(
            "this engine always keeps the history; ask the reference for a run without one",
        ));
    }
    let pieces = pieces(request);
    let last_of_prefill = request.prefill_len - 1;
    // Where the rows come from: the end of every piece, then every decode step.
    let ends = pieces.iter().scan(0, |end, piece| {
        *end += piece.len();
        Some(*end - 1)
    });
    let places: Vec<usize> = ends.chain(request.prefill_len..request.ids.len()).collect();
    let mut positions = Vec::with_capacity(request.positions.len());
    for &position in request.positions.iter().take_while(|position| **position < last_of_prefill) {
        if places.binary_search(&position).is_err() {
            rows.run(&[&request.ids[..=position]], &mut |row| {
                positions.push(scored_position(row, position, Phase::Prefill, request));
                Next::Stop
            })?;
        }
    }

    mlx::restart_peak();
    let before = mlx::settled_memory_bytes();
    let mut held_bytes = None;
    let mut prefill = Duration::ZERO;
    let mut decode = Duration::ZERO;
    let mut place = 0;
    let mut resumed = Instant::now();
    rows.run(&pieces, &mut |row| {
        let position = places[place];
        let phase = if position <= last_of_prefill { Phase::Prefill } else { Phase::Decode };
        match phase {
            Phase::Prefill => prefill += resumed.elapsed(),
            Phase::Decode => decode += resumed.elapsed(),
        }
        if request.positions.binary_search(&position).is_ok() {
            positions.push(scored_position(row, position, phase, request));
        }
        place += 1;
        if place == places.len() {
            held_bytes = mlx::settled_memory_bytes().zip(before).map(|(now, then)| now.saturating_sub(then));
        }
        resumed = Instant::now();
        request
            .ids
            .get(position + 1)
            .filter(|_| place < places.len())
            .map_or(Next::Stop, |id| Next::Feed(*id))
    })?;
    positions.sort_by_key(|scored| scored.position);
    Ok(Scored {
        positions,
        prefill_s: prefill.as_secs_f64(),
        decode_s: decode.as_secs_f64(),
        held_bytes,
        peak_bytes: mlx::peak_memory_bytes(),
    })
}

fn scored_position(row: &[f32], position: usize, phase: Phase, request: &Score) -> ScoredPosition {
    let non_finite = logits::non_finite(row);
    let next_logprob = match request.ids.get(position + 1) {
        Some(next) if non_finite == 0 => Some(row[*next as usize] as f64 - logits::log_sum_exp(row)),
        _ => None,
    };
    ScoredPosition {
        position,
        phase,
        non_finite,
        next_logprob,
        top: logits::top_k(row, request.top_k),
        logits_f32: match request.logits {
            LogitsDetail::Summary => None,
            LogitsDetail::Full => Some(logits::encode_row(row)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Predicts the id after the last one, out of five; remembers what it was fed, prefill by prefill.
    #[derive(Default)]
    struct CountUp {
        runs: Vec<Vec<u32>>,
    }

    impl Rows for CountUp {
        fn run(
            &mut self,
            pieces: &[&[u32]],
            choose: &mut dyn FnMut(&[f32]) -> Next,
        ) -> Result<(), EngineError> {
            let row_after = |last: u32| {
                let mut row = [0.0; 5];
                row[(last as usize + 1) % 5] = if last == 4 { f32::NAN } else { 1.0 };
                row
            };
            let (prompt, earlier) = pieces.split_last().unwrap();
            for piece in earlier {
                self.runs.push(piece.to_vec());
                choose(&row_after(piece[piece.len() - 1]));
            }
            let mut fed = prompt.to_vec();
            let mut last = prompt[prompt.len() - 1];
            while let Next::Feed(id) = choose(&row_after(last)) {
                fed.push(id);
                last = id;
            }
            self.runs.push(fed);
            Ok(())
        }
    }

    fn generate_request(max_tokens: usize, stop_ids: &[u32]) -> Generate {
        Generate { prompt_ids: vec![3, 0], max_tokens, stop_ids: stop_ids.to_vec(), top_k: 1 }
    }

    #[test]
    fn generation_feeds_each_choice_back_and_ends_at_the_limit() {
        let mut model = CountUp::default();
        let steps = generate(&mut model, &generate_request(3, &[])).unwrap();
        assert_eq!((steps.ids, steps.finish), (vec![1, 2, 3], Finish::Length));
        assert_eq!((steps.token_times_s.len(), steps.top.len()), (2, 3));
        // The third id is never fed: nobody wants the row after it.
        assert_eq!(model.runs, [vec![3, 0, 1, 2]]);
    }

    #[test]
    fn a_stop_id_ends_generation_and_is_not_part_of_it() {
        let steps = generate(&mut CountUp::default(), &generate_request(9, &[3, 4])).unwrap();
        assert_eq!((steps.ids, steps.finish), (vec![1, 2], Finish::Stop));
        assert_eq!((steps.token_times_s.len(), steps.top.len()), (1, 2));
        let steps = generate(&mut CountUp::default(), &generate_request(9, &[1])).unwrap();
        assert_eq!((steps.ids, steps.finish, steps.token_times_s), (vec![], Finish::Stop, vec![]));
    }

    #[test]
    fn no_tokens_wanted_runs_nothing() {
        let mut model = CountUp::default();
        assert_eq!(generate(&mut model, &generate_request(0, &[])).unwrap().ids, [0; 0]);
        assert_eq!(model.runs.len(), 0);
    }

    fn score_request(positions: &[usize]) -> Score {
        Score {
            ids: vec![2, 0, 1, 4, 3],
            prefill_len: 3,
            positions: positions.to_vec(),
            top_k: 1,
            logits: LogitsDetail::Summary,
            history: History::Kept,
            chunk: None,
            warm: None,
        }
    }

    #[test]
    fn scoring_forces_the_ids_and_reports_each_chosen_position_in_order() {
        let mut model = CountUp::default();
        let scored = score(&mut model, &score_request(&[0, 2, 3, 4])).unwrap();
        assert_eq!(model.runs, [vec![2], vec![2, 0, 1, 4, 3]]);
        let seen = scored.positions.iter().map(|at| (at.position, at.phase, at.non_finite));
        assert_eq!(
            seen.collect::<Vec<_>>(),
            [(0, Phase::Prefill, 0), (2, Phase::Prefill, 0), (3, Phase::Decode, 1), (4, Phase::Decode, 0)]
        );
        let tops = scored.positions.iter().map(|at| at.top.first().map(|top| top.id));
        assert_eq!(tops.collect::<Vec<_>>(), [Some(3), Some(2), None, Some(4)]);
        let normalizer = (4.0 + 1f64.exp()).ln();
        let next = scored.positions.iter().map(|at| at.next_logprob).collect::<Vec<_>>();
        // 0 follows 2, 4 follows 1: neither is the favourite. Nothing follows the last, and NaN has no logarithm.
        assert!((next[0].unwrap() + normalizer).abs() < 1e-9, "{next:?}");
        assert!((next[1].unwrap() + normalizer).abs() < 1e-9, "{next:?}");
        assert_eq!(next[2..], [None, None]);
    }

    #[test]
    fn scoring_runs_every_step_even_where_no_position_is_chosen() {
        let mut model = CountUp::default();
        assert_eq!(score(&mut model, &score_request(&[])).unwrap().positions, []);
        assert_eq!(model.runs, [vec![2, 0, 1, 4, 3]]);
    }

    #[test]
    fn pieces_go_in_one_after_the_other_and_answer_for_the_positions_at_their_ends() {
        let positions = |request: &Score, model: &mut CountUp| {
            let scored = score(model, request).unwrap();
            scored.positions.iter().map(|at| (at.position, at.phase)).collect::<Vec<_>>()
        };
        let mut model = CountUp::default();
        let cut = Score { chunk: Some(2), ..score_request(&[0, 1, 2, 3]) };
        let expected = [(0, Phase::Prefill), (1, Phase::Prefill), (2, Phase::Prefill), (3, Phase::Decode)];
        assert_eq!(positions(&cut, &mut model), expected);
        // Position 0 ends no piece, so it has a prefill of its own.
        assert_eq!(model.runs, [vec![2], vec![2, 0], vec![1, 4, 3]]);

        let mut model = CountUp::default();
        let warm = Score { warm: Some(1), ..score_request(&[1, 2, 4]) };
        assert_eq!(
            positions(&warm, &mut model),
            [(1, Phase::Prefill), (2, Phase::Prefill), (4, Phase::Decode)]
        );
        assert_eq!(model.runs, [vec![2], vec![0], vec![1, 4, 3]]);
    }

    #[test]
    fn a_run_without_history_is_refused() {
        let request = Score { history: History::None, ..score_request(&[0]) };
        assert_eq!(
            score(&mut CountUp::default(), &request).unwrap_err().kind,
            crate::protocol::EngineErrorKind::BadRequest
        );
    }
}
