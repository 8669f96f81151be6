//! Any bytes, read as commands of a Redis client: no panic, any split gives the same commands, and the forwarded bytes are a part of
//! the bytes that were read. Mirrored on stable by the properties in `proxy::redis`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::redis::command::{BadCommand, CommandReader};

/// Forwards the commands whose name begins with an even byte. Returns the names, and the forwarded bytes.
fn read(pieces: &[&[u8]]) -> (Vec<Option<Vec<u8>>>, Vec<u8>, Result<(), BadCommand>) {
    let mut reader = CommandReader::new(|name| name.len() % 2 == 0);
    let (mut names, mut output) = (Vec::new(), Vec::new());
    for piece in pieces {
        let mut input = *piece;
        loop {
            match reader.read(&mut input, &mut output) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return (names, output, Err(error)),
            }
            let name = reader.head().name().map(<[u8]>::to_vec);
            match name.as_ref().and_then(|name| name.first()).is_some_and(|first| first % 2 == 0) {
                true => reader.forward(&mut output),
                false => reader.discard(),
            }
            names.push(name);
        }
    }
    (names, output, Ok(()))
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(&[bytes]);
    assert!(whole.1.len() <= bytes.len());
    let singly: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read(&singly), whole);
});
