//! A secret opens only in its own place and with its own key.

use keys::keyring::OVERHEAD;
use keys::{Context, Keyring, KeyringConfig, MasterKeySource, OpenError};
use proptest::prelude::*;

/// Opens a keyring over one master key file in the folder.
fn ring(folder: &std::path::Path, name: &str) -> Keyring {
    Keyring::open(&KeyringConfig { current: file(folder, name), older: Vec::new() }).unwrap()
}

fn file(folder: &std::path::Path, name: &str) -> MasterKeySource {
    MasterKeySource::File { path: folder.join(name), create: true }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn secret_opens_only_in_its_own_table_row_and_column(
        secret in proptest::collection::vec(any::<u8>(), 0..300),
        table in "[a-z]{1,8}", column in "[a-z]{1,8}",
        row in proptest::collection::vec(any::<u8>(), 0..20),
        other_table in "[a-z]{0,8}", other_column in "[a-z]{0,8}",
        other_row in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let ring = Keyring::ephemeral();
        let context = Context { table: &table, row: &row, column: &column };
        let sealed = ring.seal(&context, &secret);
        prop_assert_eq!(sealed.len(), secret.len() + OVERHEAD);
        prop_assert_eq!(ring.open_sealed(&context, &sealed).map(|text| text.to_vec()), Ok(secret.clone()));
        prop_assert!(ring.is_current(&sealed));
        for other_context in [
            Context { table: &other_table, ..context },
            Context { column: &other_column, ..context },
            Context { row: &other_row, ..context },
            // The same letters, split differently.
            Context { table: &format!("{table}{column}"), column: "", ..context },
            Context { table: &column, column: &table, ..context },
        ] {
            if other_context != context {
                prop_assert_eq!(ring.open_sealed(&other_context, &sealed), Err(OpenError::Forged));
                prop_assert_eq!(ring.rewrap(&other_context, &sealed), Err(OpenError::Forged));
            }
        }
        let stranger = Keyring::ephemeral();
        prop_assert_eq!(stranger.open_sealed(&context, &sealed), Err(OpenError::UnknownMaster(ring.current())));
        prop_assert!(!stranger.is_current(&sealed));
    }

    #[test]
    fn modified_ciphertext_never_opens(
        secret in proptest::collection::vec(any::<u8>(), 0..100),
        at in any::<proptest::sample::Index>(), bits in 1_u8..,
        cut in any::<proptest::sample::Index>(),
    ) {
        let ring = Keyring::ephemeral();
        let context = Context { table: "keys", row: b"1", column: "sealed" };
        let sealed = ring.seal(&context, &secret);
        let mut changed = sealed.clone();
        changed[at.index(sealed.len())] ^= bits;
        prop_assert!(ring.open_sealed(&context, &changed).is_err());
        prop_assert!(ring.open_sealed(&context, &sealed[..cut.index(sealed.len())]).is_err());
        let longer = [&sealed[..], &[bits]].concat();
        prop_assert_eq!(ring.open_sealed(&context, &longer), Err(OpenError::Forged));
    }

    #[test]
    fn arbitrary_bytes_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let ring = Keyring::ephemeral();
        let context = Context { table: "keys", row: b"1", column: "sealed" };
        prop_assert!(ring.open_sealed(&context, &bytes).is_err());
        prop_assert!(ring.rewrap(&context, &bytes).is_err());
        prop_assert!(!ring.is_current(&bytes));
    }

    #[test]
    fn rewrapping_keeps_the_content_and_needs_the_old_key(
        secret in proptest::collection::vec(any::<u8>(), 0..100),
        at in any::<proptest::sample::Index>(), bits in 1_u8..,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let context = Context { table: "keys", row: b"1", column: "sealed" };
        let old = ring(folder.path(), "old");
        let sealed = old.seal(&context, &secret);
        let config = KeyringConfig { current: file(folder.path(), "new"), older: vec![file(folder.path(), "old")] };
        let both = Keyring::open(&config).unwrap();
        prop_assert!(!both.is_current(&sealed));
        prop_assert_eq!(both.open_sealed(&context, &sealed).map(|text| text.to_vec()), Ok(secret.clone()));
        let moved = both.rewrap(&context, &sealed).unwrap();
        prop_assert!(both.is_current(&moved));
        // Only the wrapping changed: the encrypted secret is the same.
        prop_assert_eq!(&moved[69..], &sealed[69..]);
        prop_assert_eq!(moved.len(), sealed.len());
        let new = ring(folder.path(), "new");
        prop_assert_eq!(new.open_sealed(&context, &moved).map(|text| text.to_vec()), Ok(secret.clone()));
        prop_assert!(new.open_sealed(&context, &sealed).is_err());
        prop_assert!(new.rewrap(&context, &sealed).is_err());
        prop_assert!(old.open_sealed(&context, &moved).is_err());
        let mut changed = moved;
        let at = at.index(changed.len());
        changed[at] ^= bits;
        prop_assert!(both.open_sealed(&context, &changed).is_err());
    }
}

#[test]
fn sealing_is_randomized() {
    let ring = Keyring::ephemeral();
    let context = Context { table: "keys", row: b"1", column: "sealed" };
    let (one, two) = (ring.seal(&context, b"secret"), ring.seal(&context, b"secret"));
    // All bytes but the version and the master key's ID.
    assert!(one[9..].iter().zip(&two[9..]).filter(|(a, b)| a == b).count() < 20);
    assert!(!one.windows(6).any(|window| window == b"secret"));
}

#[test]
fn new_master_key_is_promoted_at_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let context = Context { table: "keys", row: b"1", column: "sealed" };
    let ring = ring(folder.path(), "one");
    let one = ring.current();
    let sealed = ring.seal(&context, b"secret");
    let two = ring.promote(&file(folder.path(), "two")).unwrap();
    assert_eq!(ring.masters(), [two, one]);
    assert_eq!(Keyring::master_key_id_of(&sealed), Some(one));
    assert_eq!(Keyring::master_key_id_of(&ring.seal(&context, b"later")), Some(two));
    assert_eq!(ring.open_sealed(&context, &sealed).unwrap().as_slice(), b"secret");
    assert!(!ring.forget(two), "the current one stays");
    assert!(ring.forget(one));
    assert!(!ring.forget(one));
    assert_eq!(ring.open_sealed(&context, &sealed), Err(OpenError::UnknownMaster(one)));
    // Promoting the same file again gives the same key.
    assert_eq!(ring.promote(&file(folder.path(), "one")).unwrap(), one);
    assert!(ring.is_current(&sealed));
    assert_eq!(ring.promote(&file(folder.path(), "one")).unwrap(), one);
    assert_eq!(ring.masters(), [one, two]);
}
