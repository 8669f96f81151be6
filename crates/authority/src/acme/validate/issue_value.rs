//! Parser of the issue-value in CAA and `dns-persist-01` records (RFC 8659 section 4.2).

/// A parsed issue-value, such as `ca.example; accounturi=…`.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct IssueValue {
    /// Domain in lower case, without a final dot; empty means that no CA may issue.
    pub(crate) domain: String,
    /// Parameters with tags in lower case and unchanged values.
    parameters: Vec<(String, String)>,
}

impl IssueValue {
    /// Parses an issue-value. Returns `None` for invalid syntax, which must count as "no CA may issue".
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (domain, rest) = text.split_once(';').map_or((text, None), |(domain, rest)| (domain, Some(rest)));
        let domain = trim(domain);
        if !domain.is_empty() && x509::HostName::parse(domain).is_err() {
            return None;
        }
        let mut parameters = Vec::new();
        let rest = rest.map(trim).unwrap_or_default();
        if !rest.is_empty() {
            for parameter in rest.split(';') {
                let (tag, value) = trim(parameter).split_once('=')?;
                let (tag, value) = (trim(tag), trim(value));
                let tag_good = !tag.is_empty()
                    && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                    && !tag.starts_with('-')
                    && !tag.ends_with('-');
                if !tag_good || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return None;
                }
                parameters.push((tag.to_ascii_lowercase(), value.to_owned()));
            }
        }
        let domain = domain.strip_suffix('.').unwrap_or(domain).to_ascii_lowercase();
        Some(Self { domain, parameters })
    }

    /// Returns the value of a parameter. Returns `Err` if the parameter occurs more than once.
    pub(crate) fn single(&self, tag: &str) -> Result<Option<&str>, ()> {
        let mut all =
            self.parameters.iter().filter(|(found, _)| found == tag).map(|(_, value)| value.as_str());
        match (all.next(), all.next()) {
            (only, None) => Ok(only),
            _ => Err(()),
        }
    }
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issue_values_are_parsed_or_rejected() {
        let read =
            |text: &str| IssueValue::parse(text.as_bytes()).map(|value| (value.domain, value.parameters));
        type Read = Option<(&'static str, &'static [(&'static str, &'static str)])>;
        let table: &[(&str, Read)] = &[
            ("ca.example", Some(("ca.example", &[]))),
            (" CA.Example. ", Some(("ca.example", &[]))),
            ("", Some(("", &[]))),
            (";", Some(("", &[]))),
            ("ca.example;", Some(("ca.example", &[]))),
            ("ca.example; ", Some(("ca.example", &[]))),
            ("ca.example; a=1;B-c = x ", Some(("ca.example", &[("a", "1"), ("b-c", "x")]))),
            ("ca.example; a=", Some(("ca.example", &[("a", "")]))),
            (
                "ca.example; accounturi=https://a/b?c=d",
                Some(("ca.example", &[("accounturi", "https://a/b?c=d")])),
            ),
            ("ca.example a=1", None),
            ("ca.example; a", None),
            ("ca.example; a=1;", None),
            ("ca.example; a=1 2", None),
            ("ca.example; -a=1", None),
            ("ca.example; a_b=1", None),
            ("ca example", None),
            ("%%%", None),
        ];
        for (text, expected) in table {
            let expected = expected.map(|(domain, parameters)| {
                let own = |(tag, value): &(&str, &str)| ((*tag).to_owned(), (*value).to_owned());
                (domain.to_owned(), parameters.iter().map(own).collect())
            });
            assert_eq!(read(text), expected, "{text:?}");
        }
        assert!(IssueValue::parse(b"\xff").is_none());
    }

    #[test]
    fn duplicate_parameter_is_reported_as_an_error() {
        let value = IssueValue::parse(b"ca.example; a=1; b=2; a=1").unwrap();
        assert_eq!(
            (value.single("a"), value.single("b"), value.single("c")),
            (Err(()), Ok(Some("2")), Ok(None))
        );
    }
}
