//! Master keys sealed by a TPM 2.0, with `swtpm`, and checked with `tpm2-tools`.

use std::fs;
use std::path::Path;

use keys::{
    Context, Keyring, KeyringConfig, KeyringError, MasterKeySource, MissingFileAction, Pcrs, Tpm,
    UnwrappedKey, Wrapper,
};
use tempfile::TempDir;
use testbed::SoftTpm;

const HERE: Context<'static> = Context { table: "t", row: b"r", column: "c" };
fn tpm_of(soft: &SoftTpm, pcrs: &[u8], auth: &str) -> Tpm {
    Tpm::new(soft.address().parse().unwrap(), Pcrs::new(pcrs).unwrap(), auth.as_bytes()).unwrap()
}

async fn load(path: &Path, tpm: &Tpm, missing: MissingFileAction) -> Result<UnwrappedKey, KeyringError> {
    UnwrappedKey::load(path, tpm, missing).await
}

fn ring(key: UnwrappedKey) -> Keyring {
    Keyring::open(&KeyringConfig { current: MasterKeySource::Unwrapped(key), older: Vec::new() }).unwrap()
}

/// Returns the error of loading the file.
async fn refusal(path: &Path, tpm: &Tpm) -> String {
    match load(path, tpm, MissingFileAction::Refuse).await {
        Err(KeyringError::Wrapper { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tpm_sealed_key_opens_after_restart_only_in_the_same_tpm() {
    let mut soft = SoftTpm::new();
    let disk = TempDir::new().unwrap();
    let file = disk.path().join("seed.tpm");
    let made = ring(load(&file, &tpm_of(&soft, &[], ""), MissingFileAction::Create).await.unwrap());
    let sealed = made.seal(&HERE, b"seed");
    soft.restart();
    for _ in 0..5 {
        // No object stays in the TPM, which has memory for three.
        let reopened = ring(load(&file, &tpm_of(&soft, &[], ""), MissingFileAction::Refuse).await.unwrap());
        assert_eq!(reopened.open_sealed(&HERE, &sealed).unwrap().as_slice(), b"seed");
    }
    let other = SoftTpm::new();
    let why = refusal(&file, &tpm_of(&other, &[], "")).await;
    assert!(why.contains("not sealed by this TPM"), "{why}");
}

#[tokio::test]
async fn changed_pcr_value_prevents_unsealing() {
    let mut soft = SoftTpm::new();
    let file = soft.path("seed.tpm");
    let (bound, free) = (tpm_of(&soft, &[7, 23], ""), soft.path("free.tpm"));
    load(&file, &bound, MissingFileAction::Create).await.unwrap();
    load(&free, &tpm_of(&soft, &[], ""), MissingFileAction::Create).await.unwrap();
    // The sealed object names its PCRs. The configuration that opens it need not.
    load(&file, &tpm_of(&soft, &[], ""), MissingFileAction::Refuse).await.unwrap();
    let zeros = "0".repeat(64);
    let extended = soft.tool(&format!("tpm2_pcrextend 23:sha256={zeros}"));
    assert!(extended.status.success(), "{}", String::from_utf8_lossy(&extended.stderr));
    let why = refusal(&file, &bound).await;
    assert!(why.contains("the PCR values changed since the key was"), "{why}");
    load(&free, &tpm_of(&soft, &[], ""), MissingFileAction::Refuse).await.unwrap();
    // The PCR has its initial value after a restart.
    soft.restart();
    load(&soft.path("seed.tpm"), &tpm_of(&soft, &[], ""), MissingFileAction::Refuse).await.unwrap();
}

#[tokio::test]
async fn wrong_authorization_values_lock_the_tpm() {
    let soft = SoftTpm::new();
    let file = soft.path("seed.tpm");
    let right = tpm_of(&soft, &[7], "correct horse");
    load(&file, &right, MissingFileAction::Create).await.unwrap();
    load(&file, &right, MissingFileAction::Refuse).await.unwrap();
    for wrong in ["", "correct horse ", "Correct horse"] {
        let why = refusal(&file, &tpm_of(&soft, &[7], wrong)).await;
        assert!(why.contains("wrong authorization value"), "{wrong:?}: {why}");
    }
    // Guessing locks the TPM, also for the owner for a while.
    let mut why = String::new();
    for _ in 0..40 {
        why = refusal(&file, &tpm_of(&soft, &[7], "guess")).await;
        if why.contains("locked") {
            break;
        }
    }
    assert!(why.contains("locked"), "{why}");
    assert!(refusal(&file, &right).await.contains("locked"));
}

#[tokio::test]
async fn tpm2_tools_unseal_our_sealed_object() {
    let soft = SoftTpm::new();
    let secret: Vec<u8> = (0..32).collect();
    let sealed = tpm_of(&soft, &[7], "value").wrap(&secret).await.unwrap();
    // Version, PCRs, then both parts as TPM2B, the format of the tools' files.
    let private_end = 7 + usize::from(u16::from_be_bytes([sealed[5], sealed[6]]));
    fs::write(soft.path("object.priv"), &sealed[5..private_end]).unwrap();
    fs::write(soft.path("object.pub"), &sealed[private_end..]).unwrap();
    let root = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|restricted|decrypt";
    for line in [
        format!("tpm2_createprimary -C o -g sha256 -G ecc256:null:aes128cfb -a {root} -c root.ctx"),
        // There is no resource manager, so the test removes contexts.
        "tpm2_flushcontext -t".to_owned(),
        "tpm2_load -C root.ctx -u object.pub -r object.priv -c object.ctx".to_owned(),
        "tpm2_flushcontext -t".to_owned(),
        "tpm2_startauthsession --policy-session -S session.ctx".to_owned(),
        "tpm2_policypcr -S session.ctx -l sha256:7".to_owned(),
        "tpm2_policyauthvalue -S session.ctx".to_owned(),
        "tpm2_unseal -c object.ctx -p session:session.ctx+value -o opened".to_owned(),
    ] {
        let ran = soft.tool(&line);
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    assert_eq!(fs::read(soft.path("opened")).unwrap(), secret);
}

#[tokio::test]
async fn malformed_sealed_values_and_unreachable_tpms_are_rejected() {
    let soft = SoftTpm::new();
    let right = tpm_of(&soft, &[], "");
    let sealed = right.wrap(&[7; 32]).await.unwrap();
    assert_eq!(right.unwrap_key(&sealed).await.unwrap().as_slice(), &[7; 32]);
    for cut in [0, 1, 5, 20, sealed.len() - 1] {
        assert!(
            right
                .unwrap_key(&sealed[..cut])
                .await
                .unwrap_err()
                .contains("not in the format of a value that a TPM sealed"),
            "{cut}"
        );
    }
    let longer = [&sealed[..], &[0]].concat();
    assert!(right.unwrap_key(&longer).await.is_err());
    for bit in (5 * 8..sealed.len() * 8).step_by(97) {
        let mut changed = sealed.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(right.unwrap_key(&changed).await.is_err(), "{bit}");
    }
    for text in ["", "tpmrm0", "tcp:localhost", "tcp:127.0.0.1", "http://x"] {
        assert!(text.parse::<keys::TpmAddress>().is_err(), "{text:?}");
    }
    assert!(Pcrs::new(&[24]).is_err());
    assert!(Tpm::new(soft.address().parse().unwrap(), Pcrs::default(), &[1; 33]).is_err());
    let missing = Tpm::new("/dev/no-such-tpm".parse().unwrap(), Pcrs::default(), &[]).unwrap();
    assert!(
        missing
            .wrap(&[7; 32])
            .await
            .unwrap_err()
            .contains("/dev/no-such-tpm: cannot communicate with the TPM")
    );
}
