//! Human-readable error messages.

use std::error::Error;

/// Returns an error with its causes, on one line. A cause whose text is already included is left out.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let message = cause.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        below = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Above(&'static str, Option<Box<Above>>);

    impl std::fmt::Display for Above {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Above {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|below| below as &dyn Error)
        }
    }

    #[test]
    fn error_chain_contains_each_cause_once() {
        let below = |text, below| Some(Box::new(Above(text, below)));
        let error =
            Above("no answer", below("connect: refused", below("refused", below("os error 111", None))));
        assert_eq!(chain(&error), "no answer: connect: refused: os error 111");
        assert_eq!(chain(&Above("alone", None)), "alone");
    }
}
