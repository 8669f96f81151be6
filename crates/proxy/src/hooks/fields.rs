//! Header fields in the messages of hooks, and the changes that hooks may make.

use std::collections::HashMap;

use http_relay::fields::is_hop_by_hop;
use hyper::header::{CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE};

use super::envoy::config::core::v3 as core;
use super::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use super::fault::HookFault;

/// Maximum field changes in one answer of a hook.
const CHANGES_MAX: usize = 256;
/// Maximum total bytes of changed field names and values in one answer of a hook.
const CHANGED_BYTES_MAX: usize = 64 << 10;

/// A change of a header field: append, add, overwrite or remove.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum FieldChange {
    Append(HeaderName, HeaderValue),
    AddIfAbsent(HeaderName, HeaderValue),
    Overwrite(HeaderName, HeaderValue),
    OverwriteIfPresent(HeaderName, HeaderValue),
    Remove(HeaderName),
}

/// Returns the fields of a message, after its pseudo fields. As Envoy does, values are in `raw_value` only.
pub(super) fn header_map(pseudo: &[(&'static str, String)], headers: &HeaderMap) -> core::HeaderMap {
    let field = |key: &str, value: &[u8]| core::HeaderValue {
        key: key.to_owned(),
        value: String::new(),
        raw_value: value.to_vec(),
    };
    let pseudo = pseudo.iter().map(|(name, value)| field(name, value.as_bytes()));
    let fields = headers.iter().map(|(name, value)| field(name.as_str(), value.as_bytes()));
    core::HeaderMap { headers: pseudo.chain(fields).collect() }
}

/// Returns the fields of a message as a map. Values of the same name are joined (RFC 9110 section 5.3).
pub(super) fn field_map(pseudo: &[(&'static str, String)], headers: &HeaderMap) -> HashMap<String, String> {
    let mut map: HashMap<String, String> =
        pseudo.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    for name in headers.keys() {
        let separator = if *name == COOKIE { "; " } else { "," };
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        map.insert(name.as_str().to_owned(), values.join(separator));
    }
    map
}

/// Reads the changes that a hook makes. `plain` is the action for fields without an action.
///
/// # Errors
/// [`HookFault`]: a field that no hook may change, or an invalid name or value.
pub(super) fn changes(
    set: &[core::HeaderValueOption],
    remove: &[String],
    plain: HeaderAppendAction,
) -> Result<Vec<FieldChange>, HookFault> {
    let values = set.iter().filter_map(|one| one.header.as_ref());
    let bytes: usize = values.map(|field| field.key.len() + field.value.len() + field.raw_value.len()).sum();
    if set.len() + remove.len() > CHANGES_MAX || bytes > CHANGED_BYTES_MAX {
        return Err(HookFault::Invalid("it changes more than 256 fields, or more than 64 KiB"));
    }
    let mut all = Vec::with_capacity(set.len() + remove.len());
    for one in set {
        all.extend(set_field(one, plain)?);
    }
    for name in remove {
        all.extend(changeable(name)?.map(FieldChange::Remove));
    }
    Ok(all)
}

fn set_field(
    one: &core::HeaderValueOption,
    plain: HeaderAppendAction,
) -> Result<Option<FieldChange>, HookFault> {
    let field = one.header.as_ref().ok_or(HookFault::Invalid("a field has no name"))?;
    let Some(name) = changeable(&field.key)? else { return Ok(None) };
    let value = if field.raw_value.is_empty() { field.value.as_bytes() } else { &field.raw_value };
    if value.is_empty() && !one.keep_empty_value {
        return Ok(Some(FieldChange::Remove(name)));
    }
    let value =
        HeaderValue::from_bytes(value).map_err(|_| HookFault::Invalid("a field has an invalid value"))?;
    let action = match (&one.append, one.append_action()) {
        (Some(append), _) if append.value => HeaderAppendAction::AppendIfExistsOrAdd,
        (Some(_), _) => HeaderAppendAction::OverwriteIfExistsOrAdd,
        // The enum value is 0, which is also the value if the hook sends no action.
        (None, HeaderAppendAction::AppendIfExistsOrAdd) => plain,
        (None, action) => action,
    };
    Ok(Some(match action {
        HeaderAppendAction::AppendIfExistsOrAdd => FieldChange::Append(name, value),
        HeaderAppendAction::AddIfAbsent => FieldChange::AddIfAbsent(name, value),
        HeaderAppendAction::OverwriteIfExistsOrAdd => FieldChange::Overwrite(name, value),
        HeaderAppendAction::OverwriteIfExists => FieldChange::OverwriteIfPresent(name, value),
    }))
}

/// Returns the name of a field that a hook may change. `None` for `Content-Length`, which the proxy computes.
///
/// # Errors
/// [`HookFault::Field`]: the policy decided by this field, or the field belongs to the connection.
fn changeable(name: &str) -> Result<Option<HeaderName>, HookFault> {
    let forbidden = || HookFault::Field(name.chars().take(100).collect());
    if name.starts_with(':') {
        return Err(forbidden());
    }
    let name: HeaderName = name.parse().map_err(|_| HookFault::Invalid("a field has an invalid name"))?;
    if is_hop_by_hop(&name) || [HOST, TE, EXPECT].contains(&name) {
        return Err(forbidden());
    }
    Ok((name != CONTENT_LENGTH).then_some(name))
}

/// Applies changes in their order.
pub(super) fn apply(headers: &mut HeaderMap, changes: &[FieldChange]) {
    for change in changes {
        match change {
            FieldChange::Append(name, value) => {
                headers.append(name, value.clone());
            }
            FieldChange::Overwrite(name, value) => drop(headers.insert(name, value.clone())),
            FieldChange::AddIfAbsent(name, value) if !headers.contains_key(name) => {
                headers.insert(name, value.clone());
            }
            FieldChange::OverwriteIfPresent(name, value) if headers.contains_key(name) => {
                headers.insert(name, value.clone());
            }
            FieldChange::AddIfAbsent(..) | FieldChange::OverwriteIfPresent(..) => {}
            FieldChange::Remove(name) => drop(headers.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(
        key: &str,
        value: &str,
        append: Option<bool>,
        action: HeaderAppendAction,
    ) -> core::HeaderValueOption {
        core::HeaderValueOption {
            header: Some(core::HeaderValue {
                key: key.to_owned(),
                value: value.to_owned(),
                raw_value: Vec::new(),
            }),
            append: append.map(|value| core::BoolValue { value }),
            append_action: action.into(),
            keep_empty_value: false,
        }
    }

    #[test]
    fn fields_are_set_by_their_action() {
        use HeaderAppendAction::{
            AddIfAbsent, AppendIfExistsOrAdd, OverwriteIfExists, OverwriteIfExistsOrAdd,
        };
        for (append, action, plain, old, wanted) in [
            (None, AppendIfExistsOrAdd, OverwriteIfExistsOrAdd, true, "new"),
            (None, AppendIfExistsOrAdd, AppendIfExistsOrAdd, true, "old,new"),
            (Some(true), AppendIfExistsOrAdd, OverwriteIfExistsOrAdd, true, "old,new"),
            (Some(false), AppendIfExistsOrAdd, AppendIfExistsOrAdd, true, "new"),
            (None, AddIfAbsent, AppendIfExistsOrAdd, true, "old"),
            (None, AddIfAbsent, AppendIfExistsOrAdd, false, "new"),
            (None, OverwriteIfExistsOrAdd, AppendIfExistsOrAdd, false, "new"),
            (None, OverwriteIfExists, AppendIfExistsOrAdd, false, ""),
            (None, OverwriteIfExists, AppendIfExistsOrAdd, true, "new"),
        ] {
            let mut headers = HeaderMap::new();
            if old {
                headers.insert("x-a", HeaderValue::from_static("old"));
            }
            let read = changes(&[option("X-A", "new", append, action)], &[], plain).unwrap();
            apply(&mut headers, &read);
            let found = field_map(&[], &headers).remove("x-a").unwrap_or_default();
            assert_eq!(found, wanted, "{append:?} {action:?} {plain:?} {old}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("old"));
        headers.insert("x-b", HeaderValue::from_static("old"));
        let plain = AppendIfExistsOrAdd;
        let read = changes(&[option("x-a", "", None, plain)], &["X-B".to_owned()], plain).unwrap();
        apply(&mut headers, &read);
        assert!(headers.is_empty(), "{headers:?}");
    }

    #[test]
    fn routing_and_connection_fields_cannot_be_changed() {
        let plain = HeaderAppendAction::OverwriteIfExistsOrAdd;
        for name in
            [":path", ":authority", ":method", "Host", "connection", "Transfer-Encoding", "te", "upgrade"]
        {
            let set = changes(&[option(name, "a", None, plain)], &[], plain);
            assert_eq!(set, Err(HookFault::Field(name.to_owned())));
            let removed = changes(&[], &[name.to_owned()], plain);
            assert_eq!(removed, Err(HookFault::Field(name.to_owned())));
        }
        for (name, value) in [("a b", "c"), ("", "c"), ("x-a", "b\r\nc: d")] {
            let read = changes(&[option(name, value, None, plain)], &[], plain);
            assert!(matches!(read, Err(HookFault::Invalid(_))), "{name:?}: {read:?}");
        }
        // The proxy computes `Content-Length` itself.
        assert_eq!(changes(&[option("content-length", "7", None, plain)], &[], plain), Ok(Vec::new()));
        let many = vec![option("x-a", "b", None, plain); CHANGES_MAX + 1];
        assert!(changes(&many, &[], plain).is_err());
        let long = option("x-a", &"b".repeat(CHANGED_BYTES_MAX), None, plain);
        assert!(changes(&[long], &[], plain).is_err());
    }
}
