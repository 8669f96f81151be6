//! Credentials in transfer between stores, and the lines of an export.

use std::collections::HashMap;

use api::credhub::{CertificateValue, CredentialView, KeyPairValue, UserValue};
use jiff::Timestamp;
use keys::SecretJson;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use x509::Certificate;

/// Version of the export format that is written and read.
pub(super) const FORMAT: u32 = 1;

/// A line of an export: the head is first, the end is last.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Line {
    /// The head: format, origin and path of the export.
    Export(Head),
    /// A credential. Authorities precede the certificates that they signed.
    Credential(Record),
    /// A permission of an actor for a path.
    Permission(Grant),
    /// The counts of credentials and permissions. Without this line the export is incomplete.
    End(End),
}

#[derive(Deserialize, Serialize)]
pub(super) struct Head {
    pub(super) format: u32,
    pub(super) from: String,
    pub(super) path: String,
    pub(super) made_at: String,
}

#[derive(Clone, Copy, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub(super) credentials: u64,
    pub(super) permissions: u64,
}

/// A credential with its versions.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Name of the credential that signed this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signed_by: Option<String>,
    /// Whether the credential is a CA that may sign other credentials. A CA must be imported before the credentials that it signed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) authority: bool,
    /// Versions, oldest first. There is at least one.
    pub(super) versions: Vec<RecordVersion>,
}

fn is_false(truth: &bool) -> bool {
    !truth
}

/// A version of a credential, with its metadata and its expiry.
#[derive(Clone, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordVersion {
    pub(super) value: SecretJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Value>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) transitional: bool,
    /// Expiry; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<Timestamp>,
}

/// The operations that an actor may perform on a path.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grant {
    pub(super) path: String,
    pub(super) actor: String,
    pub(super) operations: Vec<String>,
}

impl RecordVersion {
    /// Converts a version from the store's view. Its value contains only fields that can be set.
    pub(super) fn of(kind: &str, credential: CredentialView<SecretJson>) -> Self {
        let CredentialView { version, value } = credential;
        Self {
            value: settable_value(kind, value),
            metadata: version.metadata,
            transitional: version.certificate.is_some_and(|facts| facts.transitional),
            expires_at: version.expires_at.and_then(|at| at.parse().ok()),
        }
    }

    /// Returns whether both versions have the same stored content. For the authority of a certificate, only the signing certificate
    /// is compared. For the expiry, only its presence is compared, because it is transferred as remaining seconds.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        self.value == other.value
            && self.metadata == other.metadata
            && self.expires_at.is_some() == other.expires_at.is_some()
    }

    /// Returns the remaining lifetime in whole seconds, 0 if expired; `None` without expiry.
    pub(super) fn seconds_left(&self, now: Timestamp) -> Option<u64> {
        let left = self.expires_at?.duration_since(now).as_secs();
        Some(u64::try_from(left).unwrap_or(0))
    }
}

/// Returns a value in the format for setting it, without derived and absent fields. A value of type `json` is kept byte for byte.
fn settable_value(kind: &str, value: SecretJson) -> SecretJson {
    if kind == "json" {
        return value;
    }
    let Ok(parsed) = value.parse::<Value>() else { return value };
    let settable = match kind {
        // A YAML parser reads some texts as other types.
        "value" | "password" => match parsed {
            Value::Number(_) => value.expose().into(),
            Value::Bool(truth) => truth.to_string().into(),
            other => other,
        },
        "user" => fields_of::<UserValue>(parsed, |_| ()),
        "rsa" | "ssh" => fields_of::<KeyPairValue>(parsed, |_| ()),
        "certificate" => fields_of::<CertificateValue>(parsed, |fields| {
            // `Record::signed_by` contains the name of the authority, if it has one.
            fields.ca_name = None;
            // During a rotation an authority has two certificates. The signing one is first.
            if let Some(first) = fields.ca.as_deref().and_then(first_certificate) {
                fields.ca = Some(first);
            }
        }),
        _ => parsed,
    };
    settable.into()
}

/// Parses `value` as a `T`, applies `change`, and returns the fields of `T` only. A value that is no `T` is returned unchanged, so
/// that the store rejects it.
fn fields_of<T: DeserializeOwned + Serialize>(value: Value, change: impl FnOnce(&mut T)) -> Value {
    let Ok(mut fields) = T::deserialize(&value) else { return value };
    change(&mut fields);
    serde_json::to_value(fields).unwrap_or(value)
}

/// Returns the first certificate of a PEM text, including its final line break.
fn first_certificate(pem: &str) -> Option<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let end = pem.find(END)? + END.len();
    Some(format!("{}\n", pem[..end].trim_start()))
}

/// Returns the parsed certificate of a value.
pub(super) fn certificate_of(value: &SecretJson) -> Option<Certificate> {
    let pem = value.parse::<CertificateValue>().ok()?.certificate?;
    let (_, der) = x509::pem::certificates(pem.as_bytes()).next()?;
    Certificate::parse(&der).ok()
}

/// An export file of CredHub's client.
#[derive(Deserialize)]
struct CredHubFile<V> {
    #[serde(alias = "Credentials", bound(deserialize = "V: Deserialize<'de>"))]
    credentials: Vec<HashMap<String, V>>,
}

/// Returns the credentials of a file of CredHub's client. Signers are determined from the certificates, and precede the
/// certificates that they signed. JSON values are kept byte for byte. YAML values are converted to JSON, because YAML has other
/// forms of numbers and texts.
pub(super) fn parse_credhub_export(text: &str) -> Result<Vec<Record>, String> {
    let all: Vec<HashMap<String, SecretJson>> = match serde_json::from_str::<CredHubFile<SecretJson>>(text) {
        Ok(file) => file.credentials,
        Err(_) => {
            let file: CredHubFile<Value> = serde_saphyr::from_str(text).map_err(|error| {
                // Report only the first line, which has the position. The rest shows the text, which contains secrets.
                let message = error.to_string();
                format!("not YAML with credentials: {}", message.lines().next().unwrap_or_default())
            })?;
            let fields = |fields: HashMap<String, Value>| {
                fields.into_iter().map(|(name, value)| (name, value.into())).collect()
            };
            file.credentials.into_iter().map(fields).collect()
        }
    };
    let mut records = all.into_iter().map(record_of).collect::<Result<Vec<_>, _>>()?;
    link_signers(&mut records);
    Ok(records)
}

fn record_of(fields: HashMap<String, SecretJson>) -> Result<Record, String> {
    let mut fields: HashMap<String, SecretJson> =
        fields.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    fields.retain(|_, value| !value.is_null());
    let mut text = |field: &str| fields.remove(field).and_then(|value| value.parse::<String>().ok());
    let name = text("name").ok_or("a credential without a name")?;
    let kind = text("type").ok_or_else(|| format!("{name} has no type"))?.to_ascii_lowercase();
    let value = fields.remove("value").ok_or_else(|| format!("{name} has no value"))?;
    let metadata = fields.remove("metadata").map(|metadata| metadata.parse()).transpose();
    let metadata = metadata.map_err(|_| format!("the metadata of {name} cannot be read"))?;
    let authority = value.parse::<CertificateValue>().ok().and_then(|value| value.ca_name);
    let signed_by = authority.filter(|name| !name.is_empty());
    let version = RecordVersion {
        value: settable_value(&kind, value),
        metadata,
        transitional: false,
        expires_at: None,
    };
    Ok(Record { name, kind, signed_by, authority: false, versions: vec![version] })
}

/// Determines the signer of each certificate, and orders authorities before the certificates that they signed.
fn link_signers(records: &mut Vec<Record>) {
    let parsed: Vec<Option<Certificate>> =
        records.iter().map(|record| certificate_of(&record.versions.last()?.value)).collect();
    let signs = |at: usize| {
        parsed[at].as_ref().is_some_and(|own| own.basic_constraints.is_some_and(|constraints| constraints.ca))
    };
    let authorities: Vec<usize> = (0..records.len()).filter(|at| signs(*at)).collect();
    let mut signer = vec![None; records.len()];
    for (at, own) in parsed.iter().enumerate() {
        let Some(own) = own else { continue };
        let signed = |other: &&usize| {
            let ca = parsed[**other].as_ref();
            ca.is_some_and(|ca| own.issuer.der == ca.subject.der && own.signed_by(&ca.public_key).is_ok())
        };
        signer[at] = authorities.iter().find(signed).copied().filter(|other| *other != at);
    }
    for (at, by) in signer.iter().enumerate() {
        records[at].authority = signs(at);
        if let (Some(by), None) = (by, &records[at].signed_by) {
            records[at].signed_by = Some(records[*by].name.clone());
        }
    }
    let depth = |at: usize| {
        let above = std::iter::successors(signer[at], |above| signer[*above]);
        above.take(records.len()).count()
    };
    let mut order: Vec<usize> = (0..records.len()).collect();
    order.sort_by_key(|at| (!signs(*at), depth(*at), *at));
    let mut remaining: Vec<Option<Record>> = std::mem::take(records).into_iter().map(Some).collect();
    records.extend(order.into_iter().filter_map(|at| remaining[at].take()));
}

/// Formats a credential as in a file of CredHub's client. Every value is JSON, which is valid YAML.
pub(super) fn plain(record: &Record) -> String {
    let Some(current) = record.versions.last() else { return String::new() };
    let mut text = format!(
        "- name: {}\n  type: {}\n  value: {}\n",
        yaml(&Value::from(record.name.as_str()).to_string()),
        record.kind,
        yaml(current.value.expose())
    );
    if let Some(metadata) = &current.metadata {
        text.push_str(&format!("  metadata: {}\n", yaml(&metadata.to_string())));
    }
    text
}

/// Escapes the characters in a JSON text that YAML does not allow. Line breaks, which JSON has between values only, become spaces: the
/// next line would need an indentation.
fn yaml(json: &str) -> String {
    let mut text = String::new();
    for letter in json.chars() {
        let odd = matches!(
            letter,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        );
        match odd {
            _ if matches!(letter, '\n' | '\r' | '\t') => text.push(' '),
            true => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_record_is_read_back_unchanged() {
        let odd = "a: b\n#\t'\"\\ \u{7f}\u{85}\u{2028}\u{feff}ä€𝄞 0x1 - ? {}";
        for (kind, value) in [
            ("value", json!(odd)),
            ("password", json!("0123")),
            ("password", json!("yes")),
            ("json", json!({ "a": [1, 2.5, null, true, odd], "": {} })),
            ("user", json!({ "username": "u", "password": odd })),
        ] {
            let version = RecordVersion {
                value: value.into(),
                metadata: Some(json!({ "k": odd })),
                transitional: false,
                expires_at: None,
            };
            let record = Record {
                name: "/a/b".into(),
                kind: kind.into(),
                signed_by: None,
                authority: false,
                versions: vec![version.clone()],
            };
            let text = format!("credentials:\n{}", plain(&record));
            let read = parse_credhub_export(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(read[0].versions[0].has_same_content(&version), "{text}");
        }
    }

    #[test]
    fn json_of_a_json_file_is_kept_byte_for_byte() {
        let exact = r#"{"z":12345678901234567890123,  "a":1.10}"#;
        let text = format!(r#"{{"Credentials":[{{"Name":"/a","Type":"json","Value":{exact}}}]}}"#);
        let read = parse_credhub_export(&text).unwrap();
        assert_eq!(read[0].versions[0].value.expose(), exact);
    }

    #[test]
    fn credhub_client_file_is_parsed() {
        let text = "credentials:\n- name: /p\n  type: password\n  value: 12345\n- Name: q\n  Type: USER\n  Value:\n    \
                    username: u\n    password: p\n    password_hash: $6$x\n  metadata:\n    k: v\n";
        let read = parse_credhub_export(text).unwrap();
        assert_eq!(read[0].versions[0].value, json!("12345").into());
        assert_eq!(
            (read[1].kind.as_str(), &read[1].versions[0].value),
            ("user", &json!({ "username": "u", "password": "p" }).into())
        );
        assert_eq!(read[1].versions[0].metadata, Some(json!({ "k": "v" })));
        for bad in [
            "",
            "a: 1",
            "credentials:\n- type: value\n  value: x\n",
            "credentials: [secret-7",
            "credentials: 7",
        ] {
            let error = parse_credhub_export(bad).err().unwrap();
            assert!(!error.contains("secret-7"), "{error}");
        }
    }
}
