//! Any bytes, read as the first packet of a PostgreSQL client and as messages of a server: no panic, and a startup message that was
//! read is written for the server with the same database. Mirrored on stable by the properties in `proxy::postgresql`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::postgresql::message::{Authentication, Message, error_field, password};
use proxy::postgresql::packet::{Packet, cancel_request};

fuzz_target!(|bytes: &[u8]| {
    match Packet::parse(bytes) {
        Ok(Packet::Startup(startup)) => {
            let sent = startup.packet_as("app");
            assert_eq!(u32::from_be_bytes([sent[0], sent[1], sent[2], sent[3]]) as usize, sent.len());
            let Ok(Packet::Startup(again)) = Packet::parse(&sent[4..]) else { panic!("{startup:?}") };
            assert_eq!((again.user(), again.database()), ("app", startup.database()));
            assert!(!again.replicates() && again.extensions().is_empty());
        }
        Ok(Packet::Cancel(key)) => {
            assert_eq!(Packet::parse(&cancel_request(&key)[4..]), Ok(Packet::Cancel(key)))
        }
        Ok(Packet::Ssl | Packet::GssEncryption) | Err(_) => {}
    }
    let _ = Authentication::parse(bytes);
    let _ = error_field(bytes, b'C');
    let _ = password(&Message { kind: b'p', body: bytes.to_vec().into() });
});
