//! Header fields of the native protocol from strangers: no panic, and what is read survives writing.
#![no_main]

use keyless::native::{TraceParent, grpc_timeout};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = grpc_timeout(text);
    if let Some(parent) = TraceParent::parse(text) {
        assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
    }
});
