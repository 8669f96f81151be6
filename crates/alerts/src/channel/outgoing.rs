//! The HTTP request that delivers a message to a channel.

/// A POST request with a JSON body.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(super) url: String,
    pub(super) body: Vec<u8>,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Outgoing {
    pub(super) fn json(url: &str, body: &serde_json::Value) -> Self {
        Self { url: url.to_owned(), body: body.to_string().into_bytes(), headers: Vec::new() }
    }

    pub(super) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }
}
