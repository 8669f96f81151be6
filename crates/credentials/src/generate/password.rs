//! Generation of passwords from the operating system's random numbers.

use keys::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::CredentialError;

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const SPECIAL: &str = "!\"#$%&'()*,-./:;<=>?@[\\]^_`{|}~";

/// Minimum characters of every class that is not excluded.
const CLASS_CHARS_MIN: usize = 2;

const LENGTH_MIN: u32 = 4;
const LENGTH_MAX: u32 = 200;
const LENGTH: u32 = 30;

const NOTHING_LEFT: &str = "The combination of parameters in the request is not allowed. Please validate your input and retry your request.";

/// Parameters for generating a password.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PasswordParameters {
    /// Number of characters. A number outside 4 to 200 is replaced with 30.
    pub length: u32,
    /// Whether the password contains punctuation characters.
    pub include_special: bool,
    /// Whether digits are excluded.
    pub exclude_number: bool,
    /// Whether upper-case letters are excluded.
    pub exclude_upper: bool,
    /// Whether lower-case letters are excluded.
    pub exclude_lower: bool,
}

impl Default for PasswordParameters {
    fn default() -> Self {
        Self {
            length: LENGTH,
            include_special: false,
            exclude_number: false,
            exclude_upper: false,
            exclude_lower: false,
        }
    }
}

impl PasswordParameters {
    /// Returns parameters for a password of letters only.
    pub(crate) fn letters(length: usize) -> Self {
        Self { length: u32::try_from(length).unwrap_or(LENGTH), exclude_number: true, ..Self::default() }
    }

    /// Corrects an invalid length. Fails when all character classes are excluded.
    pub(super) fn checked(mut self) -> Result<Self, CredentialError> {
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&self.length) {
            self.length = LENGTH;
        }
        if self.classes().is_empty() { Err(CredentialError::bad(NOTHING_LEFT)) } else { Ok(self) }
    }

    fn classes(&self) -> Vec<&'static [u8]> {
        let all = [
            (!self.exclude_lower, LOWER),
            (!self.exclude_upper, UPPER),
            (!self.exclude_number, DIGITS),
            (self.include_special, SPECIAL),
        ];
        all.into_iter().filter(|(used, _)| *used).map(|(_, class)| class.as_bytes()).collect()
    }

    /// Generates a password: two characters of each class if the length allows, the rest from all classes, in random order.
    pub(crate) fn make(&self) -> Result<Secret, CredentialError> {
        let classes = self.classes();
        let all: Vec<u8> = classes.concat();
        let length = self.length as usize;
        let mut chosen = Zeroizing::new(Vec::with_capacity(length));
        for _ in 0..CLASS_CHARS_MIN {
            for class in &classes {
                if chosen.len() < length {
                    chosen.push(class[random_below(class.len())?]);
                }
            }
        }
        while chosen.len() < length {
            chosen.push(all[random_below(all.len())?]);
        }
        // Fisher–Yates shuffle, in place.
        for last in (1..chosen.len()).rev() {
            let other = random_below(last + 1)?;
            chosen.swap(last, other);
        }
        Ok(Secret::new(chosen.iter().map(|byte| char::from(*byte)).collect::<String>()))
    }
}

/// Returns a uniform random number below `bound` (1 to 256). Discards values that would make small numbers more likely, and draws
/// again.
fn random_below(bound: usize) -> Result<usize, CredentialError> {
    let fair = 256 / bound * bound;
    loop {
        let mut byte = [0_u8; 1];
        aws_lc_rs::rand::fill(&mut byte)
            .map_err(|_| CredentialError::Internal("no randomness".to_owned()))?;
        let number = usize::from(byte[0]);
        if number < fair {
            return Ok(number % bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_in(text: &str, class: &str) -> usize {
        text.chars().filter(|c| class.contains(*c)).count()
    }

    #[test]
    fn generated_passwords_have_two_of_each_class_and_no_excluded_ones() {
        let special = PasswordParameters { length: 8, include_special: true, ..Default::default() };
        let digits = PasswordParameters {
            length: 4,
            exclude_lower: true,
            exclude_upper: true,
            ..PasswordParameters::default()
        };
        for _ in 0..200 {
            let made = special.make().unwrap();
            for class in [LOWER, UPPER, DIGITS, SPECIAL] {
                assert_eq!(count_in(made.expose(), class), 2, "{}", made.expose());
            }
            let made = digits.make().unwrap();
            assert_eq!((made.expose().len(), count_in(made.expose(), DIGITS)), (4, 4));
            let made = PasswordParameters::letters(20).make().unwrap();
            assert_eq!(count_in(made.expose(), LOWER) + count_in(made.expose(), UPPER), 20);
        }
    }

    #[test]
    fn generated_password_characters_are_uniformly_distributed() {
        let digits = PasswordParameters {
            length: 200,
            exclude_lower: true,
            exclude_upper: true,
            ..PasswordParameters::default()
        };
        let mut counts = [0_u32; 10];
        for _ in 0..500 {
            for c in digits.make().unwrap().expose().bytes() {
                counts[usize::from(c - b'0')] += 1;
            }
        }
        // 10,000 expected; five standard deviations are about 475.
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn out_of_range_lengths_become_30_and_empty_alphabets_are_rejected() {
        for (length, then) in [(0, 30), (3, 30), (4, 4), (200, 200), (201, 30)] {
            let parameters = PasswordParameters { length, ..Default::default() };
            assert_eq!(parameters.checked().unwrap().length, then);
        }
        let nothing = PasswordParameters {
            exclude_lower: true,
            exclude_upper: true,
            exclude_number: true,
            ..PasswordParameters::default()
        };
        assert_eq!(nothing.checked().unwrap_err().to_string(), NOTHING_LEFT);
    }
}
