//! Lines in turn: by their shares, nobody starved, nothing lost.

use keyless::fair::Fair;
use proptest::prelude::*;

/// The dearest job, µs.
const DEAREST: u64 = 100;
const PLACES: usize = 1_000;

/// What happens to the lines.
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
    /// Where every line always has work, each has done its part of it after any number of jobs, within a turn of its own
    /// and one of each other.
    #[test]
    fn work_is_shared_by_share(
        lines in prop::collection::vec((1..=10_u32, 1..=DEAREST), 2..8),
        taken in 200..2_000_usize,
    ) {
        let mut fair = Fair::new(PLACES, DEAREST);
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
        // Turns done by each: work in units of what a turn gives. In any stretch, two lines differ by a turn begun and a
        // job's rest at each end.
        let turns: Vec<f64> = done
            .iter()
            .zip(&shares)
            .map(|(work, share)| *work as f64 / (DEAREST * u64::from(*share)) as f64)
            .collect();
        let (least, most) = (turns.iter().copied().fold(f64::MAX, f64::min), turns.iter().copied().fold(0.0, f64::max));
        prop_assert!(most - least <= 2.0, "{turns:?}");
    }

    /// A job is done after a bounded amount of others' work, whatever they ask for: the turns of the others and its own
    /// line before it.
    #[test]
    fn nobody_starves(others in prop::collection::vec(1..=10_u32, 1..8), before in 0..8_u64) {
        let mut fair = Fair::new(PLACES, DEAREST);
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

    /// What is put in comes out, once, in the order of its line, and the count is right all the time.
    #[test]
    fn nothing_is_lost_or_made_up(steps in prop::collection::vec(step(4), 1..400), places in 1..50_usize) {
        let mut fair = Fair::new(places, DEAREST);
        let mut shares = vec![1, 0, 0, 0];
        let mut model: Vec<std::collections::VecDeque<u64>> = vec![std::collections::VecDeque::new(); 4];
        let mut number = 0;
        for step in steps {
            match step {
                Step::Put { line, work } => {
                    number += 1;
                    let free = places.saturating_sub(fair.waiting());
                    match fair.put(line, work, (line, number)) {
                        Ok(()) => {
                            prop_assert!(shares[line] > 0);
                            model[line].push_back(number);
                        }
                        // Full, or nobody's: never when there is a place that is its own.
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
fn a_line_alone_has_all_places_and_among_others_its_part_and_half_of_what_is_free() {
    let fill = |fair: &mut Fair<()>, line| (0..).take_while(|_| fair.put(line, 1, ()).is_ok()).count();
    let mut fair = Fair::new(PLACES, DEAREST);
    assert_eq!(fill(&mut fair, 0), PLACES);
    assert_eq!(fill(&mut fair, 1), 0, "nobody's line");

    let mut fair = Fair::new(PLACES, DEAREST);
    fair.set_shares(&[1, 1, 1, 7]);
    assert_eq!(fill(&mut fair, 0), PLACES / 2, "what is free is halved");
    assert_eq!(fill(&mut fair, 3), 7 * PLACES / 10, "its own places are there whatever the others have");
    assert_eq!(fill(&mut fair, 1), PLACES / 10);
    assert_eq!(fair.waiting(), PLACES / 2 + 7 * PLACES / 10 + PLACES / 10);
}
