//! A reader of the CBOR subset of CTAP2: definite lengths, shortest integers, no tags and no floating-point numbers.

use crate::error::Error;

/// Maximum nesting of arrays and maps. CTAP2 permits four levels.
const DEPTH_MAX: u8 = 4;

/// A value that borrows from its encoding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Value<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    Array(Vec<Value<'a>>),
    Map(Vec<(Value<'a>, Value<'a>)>),
    Bool(bool),
    Null,
}

impl<'a> Value<'a> {
    /// Returns the value of a map under a key.
    pub(crate) fn get(&self, key: &Value<'_>) -> Option<&Value<'a>> {
        let Self::Map(pairs) = self else { return None };
        pairs.iter().find(|(found, _)| found == key).map(|(_, value)| value)
    }

    pub(crate) fn bytes(&self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    pub(crate) fn text(&self) -> Option<&'a str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }
}

/// Reads one value from the start of `input`. Returns it with the bytes that follow it.
pub(crate) fn read(input: &[u8]) -> Result<(Value<'_>, &[u8]), Error> {
    let mut reader = Reader(input);
    let value = reader.value(DEPTH_MAX)?;
    Ok((value, reader.0))
}

/// Reads one value. Rejects input with further bytes after the value.
pub(crate) fn read_all(input: &[u8]) -> Result<Value<'_>, Error> {
    match read(input)? {
        (value, []) => Ok(value),
        _ => Err(Error::Cbor),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Error::Cbor)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads the argument of an item, which must be in its shortest form.
    fn argument(&mut self, short: u8) -> Result<u64, Error> {
        let (bytes, least) = match short {
            0..=23 => return Ok(short.into()),
            24 => (1, 24),
            25 => (2, 1 << 8),
            26 => (4, 1 << 16),
            27 => (8, 1 << 32),
            _ => return Err(Error::Cbor),
        };
        let number = self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        if number < least { Err(Error::Cbor) } else { Ok(number) }
    }

    fn value(&mut self, depth: u8) -> Result<Value<'a>, Error> {
        let [head] = *self.take(1)? else { return Err(Error::Cbor) };
        let (major, short) = (head >> 5, head & 0x1f);
        if major == 7 {
            return match short {
                20 => Ok(Value::Bool(false)),
                21 => Ok(Value::Bool(true)),
                22 => Ok(Value::Null),
                _ => Err(Error::Cbor),
            };
        }
        let argument = self.argument(short)?;
        let int = || i64::try_from(argument).map_err(|_| Error::Cbor);
        let length = || usize::try_from(argument).map_err(|_| Error::Cbor);
        match major {
            0 => Ok(Value::Int(int()?)),
            1 => Ok(Value::Int(-1 - int()?)),
            2 => Ok(Value::Bytes(self.take(length()?)?)),
            3 => std::str::from_utf8(self.take(length()?)?).map(Value::Text).map_err(|_| Error::Cbor),
            // The vectors grow with the input, never by a length that it claims.
            4 => {
                let depth = depth.checked_sub(1).ok_or(Error::Cbor)?;
                let items = (0..argument).map(|_| self.value(depth));
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            5 => self.map(argument, depth.checked_sub(1).ok_or(Error::Cbor)?),
            _ => Err(Error::Cbor),
        }
    }

    fn map(&mut self, pairs: u64, depth: u8) -> Result<Value<'a>, Error> {
        let mut read: Vec<(Value<'a>, Value<'a>)> = Vec::new();
        for _ in 0..pairs {
            let key = self.value(0)?;
            if read.iter().any(|(before, _)| *before == key) {
                return Err(Error::Cbor);
            }
            read.push((key, self.value(depth)?));
        }
        Ok(Value::Map(read))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(value: &Value<'_>, out: &mut Vec<u8>) {
        let mut head = |major: u8, argument: u64| match argument {
            0..24 => out.push(major << 5 | argument as u8),
            24..0x100 => out.extend([major << 5 | 24, argument as u8]),
            0x100..0x1_0000 => {
                out.push(major << 5 | 25);
                out.extend((argument as u16).to_be_bytes());
            }
            0x1_0000..0x1_0000_0000 => {
                out.push(major << 5 | 26);
                out.extend((argument as u32).to_be_bytes());
            }
            _ => {
                out.push(major << 5 | 27);
                out.extend(argument.to_be_bytes());
            }
        };
        match value {
            Value::Int(number @ 0..) => head(0, *number as u64),
            Value::Int(number) => head(1, (-1 - number) as u64),
            Value::Bytes(bytes) => {
                head(2, bytes.len() as u64);
                out.extend(*bytes);
            }
            Value::Text(text) => {
                head(3, text.len() as u64);
                out.extend(text.as_bytes());
            }
            Value::Array(items) => {
                head(4, items.len() as u64);
                items.iter().for_each(|item| written(item, out));
            }
            Value::Map(pairs) => {
                head(5, pairs.len() as u64);
                for (key, value) in pairs {
                    written(key, out);
                    written(value, out);
                }
            }
            Value::Bool(truth) => out.push(0xf4 + u8::from(*truth)),
            Value::Null => out.push(0xf6),
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_is_written_back_as_the_same(input in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok((value, rest)) = read(&input) {
                let mut out = Vec::new();
                written(&value, &mut out);
                prop_assert_eq!(&out, &input[..input.len() - rest.len()]);
            }
        }

        #[test]
        fn integers_are_read(number in any::<i64>()) {
            let mut out = Vec::new();
            written(&Value::Int(number), &mut out);
            prop_assert_eq!(read_all(&out), Ok(Value::Int(number)));
        }
    }

    #[test]
    fn other_forms_are_rejected() {
        let deep = [0x81; 6];
        let bad: [&[u8]; 12] = [
            b"",                                                     // nothing
            &[0x18, 23],                                             // not the shortest integer
            &[0x1b, 0xff, 0, 0, 0, 0, 0, 0, 0],                      // more than 63 bits
            &[0x5f, 0xff],                                           // indefinite length
            &[0x42, 0],                                              // shorter than its length
            &[0x61, 0xff],                                           // not UTF-8
            &[0xc0, 0],                                              // a tag
            &[0xf9, 0, 0],                                           // a floating-point number
            &[0xf7],                                                 // undefined
            &[0xa2, 0, 0, 0, 0],                                     // a key twice
            &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // as many items as fit into no memory
            &deep,
        ];
        for input in bad {
            assert_eq!(read_all(input), Err(Error::Cbor), "{input:02x?}");
        }
        assert_eq!(read_all(&[0, 0]), Err(Error::Cbor), "more than one value");
        assert!(read_all(&[0x81, 0x81, 0x81, 0x81, 0]).is_ok());
        assert_eq!(read_all(&[0x81, 0x81, 0x81, 0x81, 0x80]), Err(Error::Cbor));
    }
}
