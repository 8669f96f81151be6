//! Any octets, read as a header of the PROXY protocol: no panic, and a client that was read is written back as the same.
#![no_main]

use std::net::IpAddr;

use inbound::proxy_protocol::{HEAD_BYTES, ProxiedClient, REST_MAX, parse, rest_length};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let Some((head, rest)) = octets.split_first_chunk::<HEAD_BYTES>() else { return };
    let Ok(length) = rest_length(head) else {
        assert!(parse(head, rest).is_err());
        return;
    };
    assert!(length <= REST_MAX);
    let Some(rest) = rest.get(..length) else { return };
    if let Ok(ProxiedClient::Client(client)) = parse(head, rest) {
        let address = match client.ip() {
            IpAddr::V4(address) if head[13] == 0x11 => address.octets().to_vec(),
            IpAddr::V4(address) => address.to_ipv6_mapped().octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        assert!(rest.starts_with(&address));
    }
});
