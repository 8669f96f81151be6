//! Keys of `[keys]` that are in cloud key services.

use cli::exit::{Outcome, Problem};
use serde::{Deserialize, Serialize};

/// Maximum number of keys in all clouds. The public key of each is requested at startup.
const KEYS_MAX: usize = 1_000;

/// `keys.aws_kms`: a key of AWS KMS.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AwsKeySettings {
    pub(crate) key: String,
    pub(crate) region: String,
    #[serde(default)]
    pub(crate) endpoint: String,
}

/// `keys.azure_keys`: a key of a Key Vault or Managed HSM.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AzureKeySettings {
    pub(crate) key: String,
}

/// `keys.gcp_kms`: a version of a key of Google Cloud KMS.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GcpKeySettings {
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) endpoint: String,
}

/// Rejects clouds that this build does not support, and too many keys.
pub(super) fn check(aws: usize, azure: usize, gcp: usize) -> Outcome<()> {
    for (count, setting, feature, has) in [
        (aws, "aws_kms", "aws", cfg!(feature = "aws")),
        (azure, "azure_keys", "azure", cfg!(feature = "azure")),
        (gcp, "gcp_kms", "gcp", cfg!(feature = "gcp")),
    ] {
        if count > 0 && !has {
            return Err(Problem::usage(format_args!(
                "keys.{setting} names keys, but this build lacks the feature {feature}"
            ))
            .hint(format!("build with `--features {feature}`, or leave keys.{setting} empty")));
        }
    }
    if aws + azure + gcp > KEYS_MAX {
        return Err(Problem::usage(format_args!("[keys] names more than {KEYS_MAX} cloud keys"))
            .hint("distribute the keys over several key services"));
    }
    Ok(())
}
