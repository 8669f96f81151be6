//! Fair queueing over lines: work is divided by share, no line starves, no job is lost.

use keyless::fair::FairQueue;
use proptest::prelude::*;

/// Cost of the most expensive job, in µs.
const DEAREST: u64 = 100;
const PLACES: usize = 1_000;

/// A step of the property test.
#[derive(Clone, Debug)]
enum Step {
    Put { line: usize, work: u64 },
    Take,
    Shares(Vec<u32>),
}

fn step(lines: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..lines, 1..=DEAREST).prop_map(|(line, work)| Step::Put { line, work }),
        5 => Just(Step::Take),
        1 => prop::collection::vec(0..5_u32, lines).prop_map(Step::Shares),
    ]
}

proptest! {
    /// If every line always has work, each line has done its share after any number of jobs, within one turn of its own and one
    /// turn of each other line.
    #[test]
    fn queued_work_is_divided_by_share(
        lines in prop::collection::vec((1..=10_u32, 1..=DEAREST), 2..8),
        taken in 200..2_000_usize,
    ) {
        let mut fair = FairQueue::new(PLACES, DEAREST);
        let shares: Vec<u32> = lines.iter().map(|(share, _)| *share).collect();
        fair.set_shares(&shares);
        let mut done = vec![0_u64; lines.len()];
        for (line, (_, work)) in lines.iter().enumerate() {
            for _ in 0..8 {
                fair.put(line, *work, line).unwrap();
            }
        }
        for _ in 0..taken {
            let line = fair.take().unwrap();
            done[line] += lines[line].1;
            fair.put(line, lines[line].1, line).unwrap();
        }
        // Turns done by each line: work in units of one turn. In any interval, two lines differ by at most a started turn and the
        // rest of a job at each end.
        let turns: Vec<f64> = done
            .iter()
            .zip(&shares)
            .map(|(work, share)| *work as f64 / (DEAREST * u64::from(*share)) as f64)
            .collect();
        let (least, most) = (turns.iter().copied().fold(f64::MAX, f64::min), turns.iter().copied().fold(0.0, f64::max));
        prop_assert!(most - least <= 2.0, "{turns:?}");
    }

    /// A job runs after a bounded amount of other work, however large the other lines are: the turns of the other lines, and the
    /// jobs before it in its own line.
    #[test]
    fn every_line_is_served_after_a_bounded_amount_of_work(others in prop::collection::vec(1..=10_u32, 1..8), before in 0..8_u64) {
        let mut fair = FairQueue::new(PLACES, DEAREST);
        let mut shares = others.clone();
        shares.push(1);
        fair.set_shares(&shares);
        let last = others.len();
        for line in 0..last {
            for _ in 0..100 {
                let _ = fair.put(line, 1, line);
            }
        }
        for _ in 0..=before {
            fair.put(last, DEAREST, last).unwrap();
        }
        let a_round: u64 = others.iter().map(|share| u64::from(*share) * DEAREST).sum();
        let (mut others_work, mut seen) = (0, 0);
        while seen <= before {
            let line = fair.take().unwrap();
            if line == last {
                seen += 1;
            } else {
                others_work += 1;
                let _ = fair.put(line, 1, line);
            }
            prop_assert!(others_work <= a_round * (before + 1), "{others_work} µs before {seen} of {}", before + 1);
        }
    }

    /// Each job is returned exactly once, in the order of its line. The count is correct after every step.
    #[test]
    fn every_job_is_returned_exactly_once_and_in_order(steps in prop::collection::vec(step(4), 1..400), capacity in 1..50_usize) {
        let mut fair = FairQueue::new(capacity, DEAREST);
        let mut shares = vec![1, 0, 0, 0];
        let mut model: Vec<std::collections::VecDeque<u64>> = vec![std::collections::VecDeque::new(); 4];
        let mut number = 0;
        for step in steps {
            match step {
                Step::Put { line, work } => {
                    number += 1;
                    let free = capacity.saturating_sub(fair.waiting());
                    match fair.put(line, work, (line, number)) {
                        Ok(()) => {
                            prop_assert!(shares[line] > 0);
                            model[line].push_back(number);
                        }
                        // The queue is full or the line has no share. A line's reserved slots are never refused.
                        Err(given) => {
                            prop_assert_eq!(given, (line, number));
                            prop_assert!(shares[line] == 0 || model[line].len() >= free.max(16));
                        }
                    }
                }
                Step::Take => match fair.take() {
                    Some((line, number)) => prop_assert_eq!(model[line].pop_front(), Some(number)),
                    None => prop_assert!(model.iter().all(std::collections::VecDeque::is_empty)),
                },
                Step::Shares(new) => {
                    fair.set_shares(&new);
                    shares = new;
                }
            }
            prop_assert_eq!(fair.waiting(), model.iter().map(std::collections::VecDeque::len).sum::<usize>());
        }
        let mut left = fair.take_all();
        left.sort_unstable();
        let mut wanted: Vec<(usize, u64)> =
            model.iter().enumerate().flat_map(|(line, jobs)| jobs.iter().map(move |job| (line, *job))).collect();
        wanted.sort_unstable();
        prop_assert_eq!(left, wanted);
        prop_assert_eq!((fair.waiting(), fair.take()), (0, None));
    }
}

#[test]
fn single_line_fills_the_queue_and_several_lines_keep_reserved_slots() {
    let fill = |fair: &mut FairQueue<()>, line| (0..).take_while(|_| fair.put(line, 1, ()).is_ok()).count();
    let mut fair = FairQueue::new(PLACES, DEAREST);
    assert_eq!(fill(&mut fair, 0), PLACES);
    assert_eq!(fill(&mut fair, 1), 0, "nobody's line");

    let mut fair = FairQueue::new(PLACES, DEAREST);
    fair.set_shares(&[1, 1, 1, 7]);
    assert_eq!(fill(&mut fair, 0), PLACES / 2, "what is free is halved");
    assert_eq!(fill(&mut fair, 3), 7 * PLACES / 10, "its own places are there whatever the others have");
    assert_eq!(fill(&mut fair, 1), PLACES / 10);
    assert_eq!(fair.waiting(), PLACES / 2 + 7 * PLACES / 10 + PLACES / 10);
}
