//! Kinds of objects that are JSON documents.

use http::Method;
use serde_json::Value;

use super::document_forms::{self, DocumentForm};
use crate::json;
use crate::member_fields::{self, MemberField};

/// A kind of object that is edited as a JSON document. The kinds in [`MANAGED`] are also created and deleted that way.
pub(crate) struct Kind {
    /// The last part of its path, in the API and in the console.
    pub(crate) path: &'static str,
    pub(crate) noun: &'static str,
    /// The words of the CLI command for this kind after `bulla`; empty if no command can replace an object.
    pub(crate) command: &'static str,
    /// Name of the path parameter that identifies an object.
    pub(crate) parameter: &'static str,
    /// Members of the object that an edit sends; `None`: all members that the server does not compute.
    pub(crate) members: Option<&'static [&'static str]>,
    pub(crate) method: Method,
    /// Forms for the objects; empty if the objects are edited only as JSON. If there are several forms, each is for one type of
    /// object.
    pub(crate) forms: &'static [DocumentForm],
    /// JSON pointer to an object's type, if there are several forms.
    pub(crate) type_pointer: &'static str,
    /// Filter parameter of the certificate list for the certificates that use an object; empty if there is none.
    pub(crate) used_by: &'static str,
    pub(crate) example: &'static str,
    /// Text about the consequences of an edit.
    pub(crate) edited: &'static str,
    pub(crate) deleted: &'static str,
    pub(crate) help: &'static str,
}

const PROFILE: Kind = Kind {
    path: "profiles",
    noun: "profile",
    command: "profile",
    parameter: "name",
    members: None,
    method: Method::PUT,
    forms: document_forms::PROFILE,
    type_pointer: "",
    used_by: "profile",
    example: r#"{
  "name": "web",
  "description": "Web servers",
  "names": { "dns_allowed": [".example.net"] },
  "validity": { "default_seconds": 2592000 },
  "extended_key_usage": ["serverAuth"]
}"#,
    edited: "The next renewal of each certificate with this profile follows the new rules. Issued certificates stay as they are.",
    deleted: "The server rejects the deletion while certificates use the profile.",
    help: "All members: ProfileDocument in /openapi.json.",
};

const ISSUER: Kind = Kind {
    path: "issuers",
    noun: "issuer",
    command: "issuer",
    parameter: "id",
    members: Some(&["config"]),
    method: Method::PATCH,
    forms: document_forms::ISSUER,
    type_pointer: "/config/type",
    used_by: "issuer",
    example: r#"{
  "name": "letsencrypt",
  "config": {
    "type": "acme",
    "directory": "https://acme-v02.api.letsencrypt.org/directory",
    "terms_agreed": true,
    "contact": ["mailto:pki@example.com"]
  }
}"#,
    edited: "The next order uses the new settings. Secrets that are left out stay, unless their destination changes: then give them again.",
    deleted: "The server rejects the deletion while certificates use the issuer. Issued certificates stay valid.",
    help: "Types: acme, vault, step_ca, exec, webhook. All members: docs/issuers.md.",
};

const POLICY: Kind = Kind {
    path: "policies",
    noun: "policy",
    command: "policy",
    parameter: "name",
    members: Some(&["policy"]),
    method: Method::PUT,
    forms: document_forms::POLICY,
    type_pointer: "",
    used_by: "policy",
    example: r#"{
  "name": "production",
  "policy": {
    "description": "Rules for production",
    "applies_to": { "environments": ["prod"] },
    "enforcement": "advisory",
    "renewal": { "renew_before": { "days": 14 } },
    "rules": [{ "rule": "max_lifetime", "seconds": 4060800, "severity": "error" }]
  }
}"#,
    edited: "Renewal times and violations of the certificates it applies to are computed again.",
    deleted: "Certificates that it applied to renew by their profile, and its violations are removed.",
    help: "All members: docs/lifecycle.md.",
};

const ALERT_RULE: Kind = Kind {
    path: "alert-rules",
    noun: "alert rule",
    command: "alert rule",
    parameter: "id",
    members: Some(&["name", "rule"]),
    method: Method::PUT,
    forms: document_forms::ALERT_RULE,
    type_pointer: "",
    used_by: "",
    example: r#"{
  "name": "web team",
  "rule": {
    "when": { "kinds": ["certificate"], "teams": ["web"], "min_severity": "medium" },
    "channels": ["on-call"],
    "escalate": { "after_seconds": 3600, "channels": ["managers"] },
    "digest": false
  }
}"#,
    edited: "Alerts from now on follow the new rule. Notifications that wait are still sent.",
    deleted: "Alerts that only this rule matches send no notification any more.",
    help: "Conditions in \"when\", all of which must hold: kinds, subjects, owners, teams, environments, issuers, profiles, tags, min_severity. All members: docs/alerts.md.",
};

const ALERT_CHANNEL: Kind = Kind {
    path: "alert-channels",
    noun: "alert channel",
    command: "alert channel",
    parameter: "id",
    members: Some(&["name", "config", "enabled"]),
    method: Method::PUT,
    forms: document_forms::ALERT_CHANNEL,
    type_pointer: "/config/type",
    used_by: "",
    example: r#"{
  "name": "on-call",
  "config": { "type": "webhook", "url": "https://hooks.example.net/bulla", "secret": "at least 16 characters" },
  "enabled": true
}"#,
    edited: "The next notification uses the new settings. Secrets are never shown: give them again, or the server rejects the change.",
    deleted: "Notifications that wait for it fail. Rules that name it notify their other channels only.",
    help: "Types: webhook, slack, teams, pagerduty, opsgenie, smtp. All members: docs/alerts.md.",
};

const OWNERSHIP_RULE: Kind = Kind {
    path: "ownership-rules",
    noun: "ownership rule",
    command: "",
    parameter: "id",
    members: Some(&["name", "position", "when", "assign", "from_tags"]),
    method: Method::PUT,
    forms: &[],
    type_pointer: "",
    used_by: "",
    example: r#"{
  "name": "payments",
  "when": { "host": "*.pay.example.net" },
  "assign": { "team": "payments", "environment": "prod" }
}"#,
    edited: "The rule is applied to the endpoints that it matches now: they get its team and owner. Certificates under management keep theirs.",
    deleted: "Endpoints that it matched get the owner of the next matching rule, or none.",
    help: "All members: docs/ownership.md.",
};

const TARGET: Kind = Kind {
    path: "targets",
    noun: "target",
    command: "target",
    parameter: "id",
    members: Some(&["name", "agent", "target"]),
    method: Method::PUT,
    forms: &[],
    type_pointer: "",
    used_by: "",
    example: r#"{
  "name": "web-1 nginx",
  "agent": "00000000-0000-7000-8000-000000000000",
  "target": { "type": "nginx", "fullchain": "/etc/nginx/tls/a.pem", "key": "/etc/nginx/tls/a.key" }
}"#,
    edited: "The next deployment uses the new settings. The deployed certificate stays in place until then, and files at the old paths stay. A policy may require another person's approval first.",
    deleted: "No further certificates are deployed there.",
    help: "A password in its replaced form keeps its value. All members: docs/agent.md.",
};

/// Objects that are created, edited and deleted as documents.
pub(crate) const MANAGED: [&Kind; 5] = [&PROFILE, &ISSUER, &POLICY, &ALERT_RULE, &ALERT_CHANNEL];

/// Objects that are edited as documents; other pages create and delete them.
pub(crate) const EDITED: [&Kind; 2] = [&OWNERSHIP_RULE, &TARGET];

impl Kind {
    /// Returns the path of the list in the console.
    pub(crate) fn page(&self) -> String {
        format!("/console/{}", self.path)
    }

    /// Returns the path of the list in the API.
    pub(crate) fn collection(&self) -> String {
        format!("/api/v1/{}", self.path)
    }

    /// Returns the form with this name. `None` if the kind has no such form.
    pub(crate) fn form(&self, name: &str) -> Option<&'static DocumentForm> {
        self.forms.iter().find(|form| form.name == name)
    }

    /// Returns the form for an object; `None` if no form has fields for its type.
    pub(crate) fn form_of(&self, object: &Value) -> Option<&'static DocumentForm> {
        match self.type_pointer {
            "" => self.forms.first(),
            pointer => self.form(json::text(object, pointer)),
        }
    }

    /// Returns whether an edit sends the member of this name.
    fn sends(&self, name: &str) -> bool {
        !matches!(name, "id" | "revision" | "created_at" | "updated_at")
            && self.members.is_none_or(|members| members.contains(&name))
    }

    /// Returns whether an edit sends the member of a form field.
    pub(crate) fn sends_field(&self, field: &MemberField) -> bool {
        self.members.is_none_or(|members| field.is_in(members))
    }

    /// Returns the request body of an edit that changes nothing.
    pub(crate) fn editable(&self, object: &Value) -> Value {
        let mut document = object.clone();
        if let Some(members) = document.as_object_mut() {
            members.retain(|name, value| !value.is_null() && self.sends(name));
        }
        for path in self.form_of(object).map_or(&[][..], |form| form.read_only) {
            member_fields::remove(&mut document, path);
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::form_data::FormData;

    #[test]
    fn edits_omit_computed_members() {
        let object = json!({ "name": "web", "config": { "type": "acme" }, "revision": 3, "ca": null });
        assert_eq!(ISSUER.editable(&object), json!({ "config": { "type": "acme" } }));
        assert_eq!(PROFILE.editable(&object), json!({ "name": "web", "config": { "type": "acme" } }));
        let channel =
            json!({ "name": "a", "config": {}, "enabled": true, "kind": "slack", "last_error": "x" });
        assert_eq!(ALERT_CHANNEL.editable(&channel), json!({ "name": "a", "config": {}, "enabled": true }));
        let slack = json!({ "name": "a", "config": { "type": "slack", "host": "hooks.example.net" } });
        assert_eq!(ALERT_CHANNEL.editable(&slack), json!({ "name": "a", "config": { "type": "slack" } }));
    }

    #[test]
    fn examples_and_new_documents_of_forms_are_json_of_their_type() {
        for kind in MANAGED.into_iter().chain(EDITED) {
            let example: Value = serde_json::from_str(kind.example).unwrap();
            assert!(kind.forms.is_empty() || kind.form_of(&example).is_some(), "{}", kind.noun);
            for form in kind.forms {
                let base: Value = serde_json::from_str(form.base).unwrap();
                assert_eq!(kind.form_of(&base).unwrap().name, form.name, "{}", kind.noun);
            }
        }
    }

    #[test]
    fn forms_show_the_example_and_keep_it() {
        for kind in [&PROFILE, &ISSUER, &POLICY, &ALERT_RULE] {
            let example: Value = serde_json::from_str(kind.example).unwrap();
            let form = kind.form_of(&example).unwrap();
            let mut document = example.clone();
            for field in form.fields {
                let shown = field.values(&example);
                let values: Vec<(&str, &str)> =
                    shown.iter().map(|value| (field.path(), value.as_str())).collect();
                field.write(&FormData::of(&values), &mut document).unwrap();
            }
            assert_eq!(document, example, "{}", kind.noun);
        }
    }
}
