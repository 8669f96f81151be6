//! Whether a file has changed, and rests.

use std::path::Path;
use std::time::{Duration, SystemTime};

/// Between two looks at the configuration's file.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// What a file looks like from outside: another look means another content.
pub(crate) type Look = Option<(SystemTime, u64, u64)>;

/// What a file has looked like.
#[derive(Debug)]
pub(crate) struct Looks {
    /// When it was last read.
    read: Look,
    /// When it was last looked at.
    last: Look,
}

impl Looks {
    pub(crate) fn new(look: Look) -> Self {
        Self { read: look, last: look }
    }

    /// Whether the file is to be read that looks like this now: it is another one, and nobody writes it, as it looked the same before.
    pub(crate) fn is_ripe(&mut self, now: Look) -> bool {
        let is_steady = std::mem::replace(&mut self.last, now) == now;
        is_steady && now != self.read
    }

    /// Whether what was read counts: it looks after it as it did before. Else it is looked at again.
    pub(crate) fn was_read(&mut self, before: Look, after: Look) -> bool {
        self.last = after;
        if before == after {
            self.read = after;
        }
        before == after
    }
}

/// What it looks like now.
pub(crate) fn look(file: Option<&Path>) -> Look {
    use std::os::unix::fs::MetadataExt;
    let about = std::fs::metadata(file?).ok()?;
    Some((about.modified().ok()?, about.len(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_being_written_is_left_until_it_rests() {
        let look = |octets| Some((SystemTime::UNIX_EPOCH, octets, 1));
        let mut looks = Looks::new(look(1));
        assert!(!looks.is_ripe(look(1)), "it was read");
        for octets in 2..5 {
            assert!(!looks.is_ripe(look(octets)), "it grows: {octets}");
        }
        assert!(looks.is_ripe(look(4)));
        // It grew while it was read: what was read is not all of it.
        assert!(!looks.was_read(look(4), look(5)));
        assert!(looks.is_ripe(look(5)));
        assert!(looks.was_read(look(5), look(5)));
        assert!(!looks.is_ripe(look(5)), "once is enough");
        assert!(!looks.is_ripe(None) && looks.is_ripe(None), "one that is gone is told of");
    }
}
