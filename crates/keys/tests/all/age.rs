//! Files in age's format.

use std::io::{Read, Write};

use keys::age::{AgeError, Identity, Opening, Recipient, Seal, decrypt, encrypt, encrypt_with_work};
use proptest::prelude::*;
use secrecy::{ExposeSecret, SecretString};

/// The least work there is: the tests are of the format.
const CHEAP: u8 = 2;

fn sealed(seal: &Seal, content: &[u8]) -> Vec<u8> {
    let mut writer = encrypt_with_work(seal, Vec::new(), CHEAP).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

fn opened(opening: &Opening, file: &[u8]) -> Result<Vec<u8>, AgeError> {
    let mut content = Vec::new();
    match decrypt(opening, file)?.read_to_end(&mut content) {
        Ok(_) => Ok(content),
        Err(error) => Err(*error.into_inner().unwrap().downcast::<AgeError>().unwrap()),
    }
}

fn passphrase(text: &str) -> (Seal, Opening) {
    (Seal::Passphrase(text.into()), Opening::Passphrase(text.into()))
}

fn keys() -> (Identity, Seal) {
    let key = Identity::generate();
    let seal = Seal::Recipients(vec![Identity::generate().recipient(), key.recipient()]);
    (key, seal)
}

#[test]
fn what_is_encrypted_opens_for_whom_it_is_and_for_nobody_else() {
    let (seal, opening) = passphrase("correct horse");
    let (key, to_key) = keys();
    let identities = |key: Identity| Opening::Identities(vec![Identity::generate(), key]);
    // Around the bounds of a piece.
    for length in [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000] {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        assert_eq!(opened(&opening, &sealed(&seal, &content)).unwrap(), content, "{length}");
        assert_eq!(
            opened(&identities(key.clone()), &sealed(&to_key, &content)).unwrap(),
            content,
            "{length}"
        );
    }
    let file = sealed(&seal, b"secret");
    assert!(matches!(opened(&passphrase("other").1, &file), Err(AgeError::WrongPassphrase)));
    assert!(matches!(opened(&identities(key.clone()), &file), Err(AgeError::NeedsPassphrase)));
    let file = sealed(&to_key, b"secret");
    assert!(matches!(opened(&opening, &file), Err(AgeError::NeedsKeys)));
    assert!(matches!(opened(&identities(Identity::generate()), &file), Err(AgeError::NotForKeys)));
    assert!(!file.windows(6).any(|window| window == b"secret"));
    assert!(!format!("{key:?} {opening:?}").contains("correct") && !format!("{key:?}").contains("SECRET"));
}

#[test]
fn a_bit_changed_anywhere_and_every_cut_is_noticed() {
    let (seal, opening) = passphrase("correct horse");
    let (key, to_key) = keys();
    let identities = Opening::Identities(vec![key]);
    for (file, opening) in
        [(sealed(&seal, b"a secret"), &opening), (sealed(&to_key, b"a secret"), &identities)]
    {
        for at in 0..file.len() {
            for bit in [0, 5] {
                let mut changed = file.clone();
                changed[at] ^= 1 << bit;
                assert!(opened(opening, &changed).is_err(), "bit {bit} of octet {at}");
            }
            assert!(opened(opening, &file[..at]).is_err(), "cut off at {at}");
        }
        let longer = [&file[..], b"x"].concat();
        assert!(opened(opening, &longer).is_err());
        assert_eq!(opened(opening, &file).unwrap(), b"a secret");
    }
    // Between two pieces, where each is whole.
    let file = sealed(&seal, &vec![7; 3 * 65_536]);
    let piece = 65_536 + 16;
    let cut = file.len() - piece;
    assert!(matches!(opened(&opening, &file[..cut]), Err(AgeError::Changed(65_536))));
    let longer = [&file[..], &[0; 20]].concat();
    assert!(matches!(opened(&opening, &longer), Err(AgeError::Longer)));
    // Two pieces in each other's place.
    let begin = file.len() - 3 * piece;
    let swapped = [
        &file[..begin],
        &file[begin + piece..begin + 2 * piece],
        &file[begin..begin + piece],
        &file[begin + 2 * piece..],
    ];
    assert!(matches!(opened(&opening, &swapped.concat()), Err(AgeError::Changed(0))));
    let text = String::from_utf8_lossy(&file).replacen(" 2\n", " 30\n", 1);
    assert!(matches!(opened(&opening, text.as_bytes()), Err(AgeError::TooMuchWork(30))));
    assert!(matches!(opened(&opening, b"credentials:\n"), Err(AgeError::NotAge(_))));
}

#[test]
fn keys_are_read_and_written_as_age_has_them() {
    // Made by age-keygen.
    const KEY: &str = "AGE-SECRET-KEY-19DAUCNLJ9VV98XPFGATP53AZ9U5JHAV5075PMSLMPPFJZZX5DPJQ83L689";
    const RECIPIENT: &str = "age1yec9cznn3xkzjptex4xz3vfmfkuslk6kpxrjc8l2llue5se8q3zqjtc29j";
    let file = SecretString::from(format!("# created: today\n\n{KEY}\n"));
    let keys = Identity::parse_file(&file).unwrap();
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].to_text().expose_secret(), KEY);
    assert_eq!(keys[0].recipient().to_string(), RECIPIENT);
    assert_eq!(RECIPIENT.parse::<Recipient>().unwrap(), keys[0].recipient());
    for bad in ["", "age1", "nonsense", &RECIPIENT[..60], KEY] {
        assert!(bad.parse::<Recipient>().is_err(), "{bad}");
    }
    for bad in ["", "# none", RECIPIENT, "AGE-SECRET-KEY-1X"] {
        assert!(Identity::parse_file(&bad.to_owned().into()).is_err(), "{bad}");
    }
    assert!(encrypt(&Seal::Recipients(Vec::new()), Vec::new()).is_err());
}

proptest! {
    #[test]
    fn whatever_is_no_such_file_is_refused(octets: Vec<u8>, cut in 0_usize..200) {
        let (seal, opening) = passphrase("correct horse");
        prop_assert!(opened(&opening, &octets).is_err());
        let file = sealed(&seal, b"content");
        let mixed = [&file[..cut.min(file.len())], &octets].concat();
        prop_assert!(mixed == file || opened(&opening, &mixed).is_err());
    }
}
