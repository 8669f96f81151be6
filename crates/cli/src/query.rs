//! `--query`: selects parts of documents by JMESPath (<https://jmespath.org>).

use serde_json::Value;

use crate::exit::{Exit, Outcome, Problem};

/// A compiled JMESPath expression of `--query`.
#[derive(Clone, Debug)]
pub struct Query(jmespath::Expression<'static>);

impl std::str::FromStr for Query {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        jmespath::compile(text).map(Self).map_err(|error| error.to_string())
    }
}

impl Query {
    /// Returns the result of the expression on `document`.
    ///
    /// # Errors
    /// A function of the expression gets a value of the wrong type.
    pub fn search(&self, document: &Value) -> Outcome<Value> {
        let found = self.0.search(document).map_err(|error| Problem::usage(error.to_string()))?;
        serde_json::to_value(&*found).map_err(|error| Problem::new(Exit::Machine, error))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn query_returns_the_selected_values() {
        let rows = json!([{ "name": "a", "state": "failed" }, { "name": "b", "state": "done" }]);
        let query: Query = "[?state=='failed'].name".parse().unwrap();
        assert_eq!(query.search(&rows).unwrap(), json!(["a"]));
        assert!("[?".parse::<Query>().is_err());
        let query: Query = "abs(@)".parse().unwrap();
        assert_eq!(query.search(&rows).unwrap_err().exit, Exit::Usage);
    }
}
