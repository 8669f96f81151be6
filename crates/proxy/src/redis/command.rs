//! Commands of a client: arrays of bulk strings (Redis serialization protocol specification, "Sending commands to a Redis server").

use std::ops::Range;

use zeroize::{Zeroize, Zeroizing};

/// Maximum bytes of a command that is read as a whole. A JSON Web Token in AUTH may have 16 KiB.
pub const HEAD_BYTES_MAX: usize = 32 << 10;
/// Maximum bytes of the name of a command. Names of Redis 8 have at most 20 bytes; commands of modules have longer names.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum bytes of an argument: the default of `proto-max-bulk-len` of Redis.
pub const ARGUMENT_BYTES_MAX: u64 = 512 << 20;
/// Maximum arguments of a command, as in Redis 7.
pub const ARGUMENTS_MAX: u64 = i32::MAX as u64;
/// Maximum digits of a length. [`ARGUMENTS_MAX`] has as many.
const DIGITS_MAX: usize = 10;
/// Maximum bytes of the length of an argument: `$`, digits, and the end of the line.
const LENGTH_BYTES_MAX: usize = DIGITS_MAX + 3;
/// Bytes of the end of an argument.
const END_BYTES: usize = 2;

/// Reason why bytes of a client are not a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadCommand {
    /// The command is not an array. Redis also accepts commands in one line of text, the proxy does not.
    #[error("the proxy accepts commands as arrays of bulk strings only, not inline commands")]
    Inline,
    /// A length is missing, invalid or too large, or does not fit the data.
    #[error("the command has an invalid length")]
    Length,
}

/// Splits the bytes of a client into commands. The first arguments of a command are kept until the caller decides about the command;
/// the others pass without being kept.
pub struct CommandReader {
    reads_whole: fn(&[u8]) -> bool,
    phase: Phase,
    part: Part,
    /// The length that is being read, and the number of its digits.
    length: (u64, usize),
    /// Bytes of the command as received, until the decision.
    head: Zeroizing<Vec<u8>>,
    /// Places of the complete arguments in `head`.
    arguments: Vec<Range<usize>>,
    /// Arguments that are not complete.
    arguments_left: u64,
}

/// What happens to the bytes that are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// They are kept.
    Head,
    /// None is read before the decision.
    Undecided,
    /// They are forwarded, up to the end of the command.
    Forwarded,
    /// They are discarded, up to the end of the command.
    Discarded,
}

/// The part of a command that comes next.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// `*`, which begins an array.
    ArrayMark,
    ArrayLength,
    ArrayLengthEnd,
    /// `$`, which begins an argument.
    ArgumentMark,
    ArgumentLength,
    ArgumentLengthEnd,
    /// This many bytes of an argument.
    Data(u64),
    /// The carriage return after an argument.
    DataEnd,
    /// The line feed after that.
    LastByte,
}

/// The first arguments of a command.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    reader: &'a CommandReader,
}

impl<'a> Head<'a> {
    /// Returns the name of the command; `None` if it is longer than [`NAME_BYTES_MAX`].
    #[must_use]
    pub fn name(&self) -> Option<&'a [u8]> {
        self.argument(0)
    }

    /// Returns the argument at this place; the name is at place 0.
    #[must_use]
    pub fn argument(&self, index: usize) -> Option<&'a [u8]> {
        self.reader.arguments.get(index).and_then(|range| self.reader.head.get(range.clone()))
    }

    /// Returns all arguments of the command, with its name, if the command was read as a whole.
    #[must_use]
    pub fn whole(&self) -> Option<Vec<&'a [u8]>> {
        let all = self.reader.arguments.iter().map(|range| self.reader.head.get(range.clone()));
        (self.reader.arguments_left == 0).then(|| all.flatten().collect())
    }
}

impl CommandReader {
    /// Creates a reader. `reads_whole`: whether the arguments of the command with this name are kept for the decision, if the command
    /// has at most [`HEAD_BYTES_MAX`].
    #[must_use]
    pub fn new(reads_whole: fn(&[u8]) -> bool) -> Self {
        Self {
            reads_whole,
            phase: Phase::Head,
            part: Part::ArrayMark,
            length: (0, 0),
            // Large enough that the buffer never grows: growing would leave a copy of a token in memory.
            head: Zeroizing::new(Vec::with_capacity(HEAD_BYTES_MAX + LENGTH_BYTES_MAX)),
            arguments: Vec::new(),
            arguments_left: 0,
        }
    }

    /// Reads `input`, up to the next command that needs a decision, and removes the bytes that were read. Appends bytes of a command
    /// that is forwarded to `output`. Returns whether a command needs a decision: [`forward`](Self::forward) or
    /// [`discard`](Self::discard).
    ///
    /// # Errors
    /// [`BadCommand`]. The reader must not be used after an error.
    pub fn read(&mut self, input: &mut &[u8], output: &mut Vec<u8>) -> Result<bool, BadCommand> {
        while self.phase != Phase::Undecided {
            let length = match self.part {
                Part::Data(left) => usize::try_from(left).map_or(input.len(), |left| left.min(input.len())),
                _ => input.len().min(1),
            };
            let (bytes, rest) = input.split_at(length);
            let Some(byte) = bytes.first() else { return Ok(false) };
            *input = rest;
            match self.phase {
                Phase::Forwarded => output.extend_from_slice(bytes),
                Phase::Head | Phase::Undecided => self.head.extend_from_slice(bytes),
                Phase::Discarded => {}
            }
            match self.part {
                Part::Data(left) if left > length as u64 => self.part = Part::Data(left - length as u64),
                Part::Data(_) => self.part = Part::DataEnd,
                _ => self.read_mark(*byte)?,
            }
        }
        Ok(true)
    }

    /// Reads a byte that is not data.
    fn read_mark(&mut self, byte: u8) -> Result<(), BadCommand> {
        self.part = match (self.part, byte) {
            (Part::ArrayMark, b'*') => Part::ArrayLength,
            (Part::ArrayMark, _) => return Err(BadCommand::Inline),
            (Part::ArgumentMark, b'$') => Part::ArgumentLength,
            (part @ (Part::ArrayLength | Part::ArgumentLength), b'0'..=b'9') => {
                let (length, digits) = self.length;
                // Leading zeros are rejected, because servers may read them differently.
                if digits == DIGITS_MAX || (digits > 0 && length == 0) {
                    return Err(BadCommand::Length);
                }
                self.length = (10 * length + u64::from(byte - b'0'), digits + 1);
                part
            }
            (Part::ArrayLength, b'\r') => Part::ArrayLengthEnd,
            (Part::ArgumentLength, b'\r') => Part::ArgumentLengthEnd,
            (Part::ArrayLengthEnd, b'\n') => {
                self.arguments_left = self.take_length(1, ARGUMENTS_MAX)?;
                Part::ArgumentMark
            }
            (Part::ArgumentLengthEnd, b'\n') => {
                let length = self.take_length(0, ARGUMENT_BYTES_MAX)?;
                self.begin_argument(length);
                if length == 0 { Part::DataEnd } else { Part::Data(length) }
            }
            (Part::DataEnd, b'\r') => Part::LastByte,
            (Part::LastByte, b'\n') => {
                self.end_argument();
                if self.arguments_left == 0 { Part::ArrayMark } else { Part::ArgumentMark }
            }
            _ => return Err(BadCommand::Length),
        };
        Ok(())
    }

    fn take_length(&mut self, min: u64, max: u64) -> Result<u64, BadCommand> {
        let (length, digits) = std::mem::take(&mut self.length);
        (digits > 0 && (min..=max).contains(&length)).then_some(length).ok_or(BadCommand::Length)
    }

    /// Records the place of an argument. If it is too long to be kept, the command needs a decision without it.
    fn begin_argument(&mut self, length: u64) {
        if self.phase != Phase::Head {
            return;
        }
        let free = (HEAD_BYTES_MAX - END_BYTES).saturating_sub(self.head.len());
        let max = if self.arguments.is_empty() { NAME_BYTES_MAX } else { free };
        match usize::try_from(length) {
            Ok(length) if length <= max => {
                self.arguments.push(self.head.len()..self.head.len() + length);
            }
            _ => self.phase = Phase::Undecided,
        }
    }

    fn end_argument(&mut self) {
        self.arguments_left = self.arguments_left.saturating_sub(1);
        let is_name = self.phase == Phase::Head && self.arguments.len() == 1;
        let needs_more = !is_name || self.head().name().is_some_and(self.reads_whole);
        self.phase = match self.phase {
            Phase::Head if self.arguments_left == 0 || !needs_more => Phase::Undecided,
            Phase::Forwarded | Phase::Discarded if self.arguments_left == 0 => Phase::Head,
            phase => phase,
        };
    }

    /// Returns the command that needs a decision.
    #[must_use]
    pub fn head(&self) -> Head<'_> {
        Head { reader: self }
    }

    /// Returns the number of bytes that were kept of the command that needs a decision.
    pub(super) fn head_bytes(&self) -> usize {
        self.head.len()
    }

    /// Forwards the command: appends its bytes to `output`, also those that are read later.
    pub fn forward(&mut self, output: &mut Vec<u8>) {
        output.extend_from_slice(&self.head);
        self.decide(Phase::Forwarded);
    }

    /// Discards the command, also its bytes that are read later.
    pub fn discard(&mut self) {
        self.decide(Phase::Discarded);
    }

    fn decide(&mut self, phase: Phase) {
        self.phase = if self.arguments_left == 0 { Phase::Head } else { phase };
        // Only the used part, because most commands are short.
        self.head.as_mut_slice().zeroize();
        self.head.clear();
        self.arguments.clear();
    }

    /// Returns whether the reader is within a command that is forwarded.
    #[must_use]
    pub fn is_forwarding(&self) -> bool {
        self.phase == Phase::Forwarded
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::reply::command;
    use super::*;

    /// Reads pieces, and decides: forwards every command but those named `no…`. Returns the heads and the forwarded bytes.
    fn read(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>, Result<(), BadCommand>) {
        let mut reader = CommandReader::new(|name| name.starts_with(b"all"));
        let (mut heads, mut output) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut input = *piece;
            loop {
                match reader.read(&mut input, &mut output) {
                    Ok(false) => break,
                    Ok(true) => {}
                    Err(error) => return (heads, output, Err(error)),
                }
                let head = reader.head();
                heads.push(format!("{:?} {:?}", head.name(), head.whole()));
                match head.name() {
                    Some(name) if !name.starts_with(b"no") => reader.forward(&mut output),
                    _ => reader.discard(),
                }
            }
        }
        (heads, output, Ok(()))
    }

    #[test]
    fn commands_are_forwarded_or_discarded_as_a_whole() {
        let large = vec![b'x'; 100_000];
        let (set, no, all) = (
            command(&[b"SET", b"a", &large]),
            command(&[b"no", b"*1\r\n$4\r\nPING\r\n", &large]),
            command(&[b"all", b"", b"b"]),
        );
        let sent = [&*set, &*no, &*all, &*command(&[b"PING"])].concat();
        let (heads, output, done) = read(&[&sent]);
        assert_eq!(done, Ok(()));
        assert_eq!(output, [&*set, &*all, &*command(&[b"PING"])].concat());
        let name = |text: &str| format!("{:?}", Some(text.as_bytes()));
        assert_eq!(
            heads,
            [
                format!("{} None", name("SET")),
                format!("{} None", name("no")),
                format!("{} {:?}", name("all"), Some(vec![&b"all"[..], b"", b"b"])),
                format!("{} {:?}", name("PING"), Some(vec![&b"PING"[..]])),
            ]
        );
    }

    #[test]
    fn long_commands_need_a_decision_before_they_are_read() {
        let long_name = command(&[&[b'a'; NAME_BYTES_MAX + 1]]);
        assert_eq!(read(&[&long_name[..12]]).0, ["None None"]);
        let long = command(&[b"all", &vec![b'x'; HEAD_BYTES_MAX]]);
        assert_eq!(read(&[&long[..30]]).0, [format!("{:?} None", Some(b"all"))]);
        let many: Vec<&[u8]> =
            std::iter::once(&b"all"[..]).chain(std::iter::repeat_n(&b""[..], 10_000)).collect();
        let (heads, output, done) = read(&[&command(&many)]);
        assert_eq!((heads.len(), output, done), (1, command(&many), Ok(())));
    }

    #[test]
    fn invalid_commands_are_rejected() {
        for (sent, error) in [
            (&b"PING\r\n"[..], BadCommand::Inline),
            (b"\r\n", BadCommand::Inline),
            (b"\x16\x03\x01", BadCommand::Inline),
            (b"*0\r\n", BadCommand::Length),
            (b"*-1\r\n", BadCommand::Length),
            (b"*\r\n", BadCommand::Length),
            (b"*01\r\n", BadCommand::Length),
            (b"*1\n", BadCommand::Length),
            (b"*1\r\r", BadCommand::Length),
            (b"*2147483648\r\n", BadCommand::Length),
            (b"*99999999999", BadCommand::Length),
            (b"*1\r\n+OK\r\n", BadCommand::Length),
            (b"*1\r\n$-1\r\n", BadCommand::Length),
            (b"*1\r\n$536870913\r\n", BadCommand::Length),
            (b"*1\r\n$4\r\nPINGx", BadCommand::Length),
            (b"*1\r\n$4\r\nPING\rx", BadCommand::Length),
        ] {
            assert_eq!(read(&[sent]).2, Err(error), "{:?}", String::from_utf8_lossy(sent));
        }
        assert_eq!(read(&[b"*2147483647\r\n$3\r\nSET\r\n$536870912\r\n"]).2, Ok(()));
    }

    fn any_command() -> impl Strategy<Value = Vec<u8>> {
        let name = prop_oneof![Just(b"no".to_vec()), Just(b"all".to_vec()), Just(b"SET".to_vec())];
        let arguments = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..4);
        (name, arguments).prop_map(|(name, arguments)| {
            let all: Vec<&[u8]> = std::iter::once(&name).chain(&arguments).map(Vec::as_slice).collect();
            command(&all)
        })
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_commands(
            commands in prop::collection::vec(any_command(), 0..5),
            end in prop::collection::vec(any::<u8>(), 0..20),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let sent = [commands.concat(), end].concat();
            let whole = read(&[&sent]);
            let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(sent.len() + 1)).collect();
            cuts.sort_unstable();
            let places: Vec<usize> = [vec![0], cuts, vec![sent.len()]].concat();
            let pieces: Vec<&[u8]> = places.windows(2).map(|two| &sent[two[0]..two[1]]).collect();
            prop_assert_eq!(read(&pieces), whole);
        }

        #[test]
        fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&[&bytes]);
        }
    }
}
