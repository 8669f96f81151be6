//! A histogram of bounded size whose quantiles have a bounded relative error.
//!
//! Values are counted in buckets whose bounds grow by a constant factor, as in DDSketch (Masson, Rim, Lee: "DDSketch: A fast and
//! fully-mergeable quantile sketch with relative-error guarantees", PVLDB 12(12), 2019). Sketches of two nodes or two hours can be
//! merged. The result is the same as if one sketch had counted all values.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

/// Maximum relative error of a quantile. Two compared quantiles differ by at most half a percent, so that an increase of a
/// quarter is distinguishable from one of a fifth.
pub const RELATIVE_ERROR: f64 = 0.002_5;
/// Minimum value. Smaller values, negative values and NaN count as zero.
pub const VALUE_MIN: f64 = 1e-6;
/// Maximum value. Larger values count as this value.
pub const VALUE_MAX: f64 = 1e9;
/// Maximum number of buckets. Beyond this number the two lowest buckets are merged: small quantiles lose their error bound, all
/// other quantiles keep it. Values within a factor of 160 never reach the limit.
pub const BUCKETS_MAX: usize = 1_024;
/// Maximum bytes of the text form: every bucket with a count of twenty digits.
pub const TEXT_BYTES_MAX: usize = 32 << 10;

/// Version of the text form.
const VERSION: &str = "1";
/// Ratio of a bucket's upper bound to its lower bound.
const GAMMA: f64 = (1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR);

/// A quantile sketch: counts of values in buckets. Empty by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sketch {
    zeros: u64,
    /// Counts by bucket. Bucket i contains values above GAMMA^(i-1), up to GAMMA^i.
    buckets: BTreeMap<i16, u64>,
    sum: f64,
}

/// A text that is not a valid sketch.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a sketch: {0}")]
pub struct BadSketch(&'static str);

impl Sketch {
    /// Counts a value.
    pub fn record(&mut self, value: f64) {
        self.record_many(value, 1);
    }

    /// Counts a value `times` times.
    pub fn record_many(&mut self, value: f64, times: u64) {
        if times == 0 {
            return;
        }
        // NaN fails this comparison.
        if value >= VALUE_MIN {
            let value = value.min(VALUE_MAX);
            self.sum += value * times as f64;
            self.add_count(bucket_index(value), times);
        } else {
            self.zeros = self.zeros.saturating_add(times);
        }
    }

    fn add_count(&mut self, index: i16, times: u64) {
        let count = self.buckets.entry(index).or_insert(0);
        *count = count.saturating_add(times);
        while self.buckets.len() > BUCKETS_MAX {
            if let Some((_, lowest)) = self.buckets.pop_first()
                && let Some(mut next) = self.buckets.first_entry()
            {
                *next.get_mut() = next.get().saturating_add(lowest);
            }
        }
    }

    /// Adds the counts of `other` to this sketch.
    pub fn merge(&mut self, other: &Self) {
        self.zeros = self.zeros.saturating_add(other.zeros);
        self.sum += other.sum;
        // Highest first, because only the lowest buckets may be merged.
        for (index, times) in other.buckets.iter().rev() {
            self.add_count(*index, *times);
        }
    }

    /// Returns the number of counted values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.values().fold(self.zeros, |sum, times| sum.saturating_add(*times))
    }

    /// Returns the mean of the values, exact except for rounding; `None` without values.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum / count as f64)
    }

    /// Returns the quantile `q` by nearest rank: 0.5 is the median. `q` is clamped to 0 and 1. The relative error is at most
    /// [`RELATIVE_ERROR`]. `None` without values.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).max(1);
        let mut seen = self.zeros;
        if seen >= rank {
            return Some(0.0);
        }
        for (index, times) in &self.buckets {
            seen = seen.saturating_add(*times);
            if seen >= rank {
                return Some(value_of(*index));
            }
        }
        // Only reached by rounding of the rank, for counts above 2^53.
        self.buckets.last_key_value().map(|(index, _)| value_of(*index))
    }
}

fn bucket_index(value: f64) -> i16 {
    // VALUE_MIN and VALUE_MAX bound the index to about -2,800 and 4,200.
    (value.ln() / GAMMA.ln()).ceil() as i16
}

/// Returns the representative value of a bucket. Every value in the bucket differs from it by at most [`RELATIVE_ERROR`].
fn value_of(index: i16) -> f64 {
    GAMMA.powi(i32::from(index)) * (1.0 - RELATIVE_ERROR)
}

/// Formats as `1;SUM;ZEROS;INDEX:COUNT,INDEX:COUNT…`, with rising indices. Parsing returns the same sketch.
impl Display for Sketch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION};{};{};", self.sum, self.zeros)?;
        for (number, (index, times)) in self.buckets.iter().enumerate() {
            if number > 0 {
                f.write_char(',')?;
            }
            write!(f, "{index}:{times}")?;
        }
        Ok(())
    }
}

impl FromStr for Sketch {
    type Err = BadSketch;

    /// Parses only the output of [`Display`]. All input is checked, because it may come from another program.
    fn from_str(text: &str) -> Result<Self, BadSketch> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadSketch("it is too long"));
        }
        let mut parts = text.split(';');
        let mut part = || parts.next().ok_or(BadSketch("a part is missing"));
        if part()? != VERSION {
            return Err(BadSketch("it has an unknown format"));
        }
        let sum: f64 = part()?.parse().map_err(|_| BadSketch("the sum is not a number"))?;
        if !sum.is_finite() || sum < 0.0 {
            return Err(BadSketch("the sum is out of range"));
        }
        let zeros = part()?.parse().map_err(|_| BadSketch("the count of zeros is not a number"))?;
        let buckets = parse_buckets(part()?)?;
        if parts.next().is_some() {
            return Err(BadSketch("it has too many parts"));
        }
        Ok(Self { zeros, buckets, sum })
    }
}

fn parse_buckets(text: &str) -> Result<BTreeMap<i16, u64>, BadSketch> {
    let (least, most) = (bucket_index(VALUE_MIN), bucket_index(VALUE_MAX));
    let mut buckets = BTreeMap::new();
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        let (index, times) = pair.split_once(':').ok_or(BadSketch("a bucket has no count"))?;
        let index: i16 = index.parse().map_err(|_| BadSketch("a bucket is not a number"))?;
        let times: u64 = times.parse().map_err(|_| BadSketch("a count is not a number"))?;
        let rises = buckets.last_key_value().is_none_or(|(last, _)| *last < index);
        if !(least..=most).contains(&index) || times == 0 || !rises {
            return Err(BadSketch("a bucket is out of range or order"));
        }
        buckets.insert(index, times);
    }
    if buckets.len() > BUCKETS_MAX {
        return Err(BadSketch("it has too many buckets"));
    }
    Ok(buckets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| sketch.record(*value));
        sketch
    }

    fn same(a: &Sketch, b: &Sketch) -> bool {
        // Sums differ with the order of addition.
        a.zeros == b.zeros && a.buckets == b.buckets && (a.sum - b.sum).abs() <= 1e-9 * (1.0 + a.sum)
    }

    #[test]
    fn empty_sketch_has_no_quantile_or_mean() {
        let none = Sketch::default();
        assert_eq!((none.count(), none.quantile(0.5), none.mean()), (0, None, None));
        assert_eq!("1;0;0;".parse(), Ok(none));
    }

    #[test]
    fn invalid_values_count_as_zero_and_large_ones_as_the_maximum() {
        let odd = of(&[0.0, -1.0, f64::NAN, 1e-9]);
        assert_eq!((odd.count(), odd.quantile(1.0), odd.mean()), (4, Some(0.0), Some(0.0)));
        let large = of(&[f64::INFINITY]).quantile(0.5).unwrap();
        assert!((large / VALUE_MAX - 1.0).abs() <= RELATIVE_ERROR * 1.01, "{large}");
        let mut shares = Sketch::default();
        shares.record_many(0.0, 99);
        shares.record_many(1.0, 1);
        assert_eq!(shares.mean(), Some(0.01));
    }

    #[test]
    fn malformed_sketches_are_rejected() {
        for text in [
            "",
            "1",
            "1;0;0",
            "2;0;0;",
            "1;x;0;",
            "1;NaN;0;",
            "1;-1;0;",
            "1;0;-1;",
            "1;0;0;1",
            "1;0;0;1:0",
            "1;0;0;2:1,1:1",
            "1;0;0;1:1,1:1",
            "1;0;0;9000:1",
            "1;0;0;1:1,",
            "1;0;0;1:1;",
        ] {
            assert!(text.parse::<Sketch>().is_err(), "{text:?}");
        }
        let long = format!("1;0;0;{}", "1:1,".repeat(TEXT_BYTES_MAX));
        assert!(long.parse::<Sketch>().is_err());
    }

    #[test]
    fn lowest_buckets_are_merged_and_high_quantiles_stay_accurate() {
        let mut wide = Sketch::default();
        (0..4_000).for_each(|n| wide.record(1e-6 * GAMMA.powi(n)));
        assert_eq!((wide.buckets.len(), wide.count()), (BUCKETS_MAX, 4_000));
        let exact = 1e-6 * GAMMA.powi(3_799);
        let found = wide.quantile(0.95).unwrap();
        assert!((found / exact - 1.0).abs() <= RELATIVE_ERROR * 1.01, "{found} {exact}");
        assert!(wide.to_string().len() <= TEXT_BYTES_MAX);
        assert_eq!(wide.to_string().parse(), Ok(wide));
    }

    proptest! {
        #[test]
        fn quantiles_stay_within_the_relative_error(
            mut values in prop::collection::vec(0.01..100.0_f64, 1..200),
            q in 0.0..=1.0_f64,
        ) {
            let found = of(&values).quantile(q).unwrap();
            values.sort_by(f64::total_cmp);
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            prop_assert!((found / exact - 1.0).abs() <= RELATIVE_ERROR + 1e-9, "{} {}", found, exact);
        }

        #[test]
        fn merge_equals_recording_all_values(a in prop::collection::vec(0.0..1e6_f64, 0..100), b in prop::collection::vec(0.0..1e6_f64, 0..100)) {
            let mut merged = of(&a);
            merged.merge(&of(&b));
            let all: Vec<f64> = a.iter().chain(&b).copied().collect();
            prop_assert!(same(&merged, &of(&all)));
            let mut other = of(&b);
            other.merge(&of(&a));
            prop_assert!(same(&merged, &other));
        }

        #[test]
        fn sketch_is_encoded_and_parsed_without_loss(values in prop::collection::vec(any::<f64>(), 0..300)) {
            let sketch = of(&values);
            prop_assert!(sketch.to_string().len() <= TEXT_BYTES_MAX);
            prop_assert_eq!(sketch.to_string().parse::<Sketch>().unwrap(), sketch);
        }

        #[test]
        fn any_parsed_sketch_is_encoded_and_parsed_without_loss(text in "1;[0-9]{1,4};[0-9]{1,4};(-?[0-9]{1,4}:[0-9]{1,4},?){0,5}") {
            if let Ok(sketch) = text.parse::<Sketch>() {
                prop_assert_eq!(sketch.to_string().parse::<Sketch>().unwrap(), sketch);
            }
        }
    }
}
