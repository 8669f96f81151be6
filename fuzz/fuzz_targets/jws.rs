//! Any octets as a signed request, as its header and as a key: no panic, and what is read can be checked.
#![no_main]

use authority::acme::jose::{AccountKey, Jws, Signer};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    check(octets);
    let encoded = URL_SAFE_NO_PAD.encode(octets);
    check(format!(r#"{{"protected":"{encoded}","payload":"{encoded}","signature":"{encoded}"}}"#).as_bytes());
    if let Ok(jwk) = serde_json::from_slice(octets)
        && let Ok(key) = AccountKey::from_jwk(&jwk)
    {
        let again = AccountKey::from_canonical(key.canonical()).expect("a canonical key is a key");
        assert_eq!(again.thumbprint(), key.thumbprint());
    }
});

fn check(body: &[u8]) {
    let Ok(jws) = Jws::parse(body) else { return };
    let _ = jws.check_algorithm();
    let _ = jws.verify_mac(b"secret");
    if let Signer::Key(key) = &jws.signer {
        let _ = jws.verify(key);
    }
}
