//! Policies as boolean formulas over node attributes.
//!
//! Example: `country: JP or (not region: EU)`. `not` binds tightest, then `and`, then `or`. `not x: v` requires that the attribute
//! `x` is present with ANOTHER value, so a node without attributes satisfies no formula. `not` before parentheses follows De
//! Morgan: `not (a: 1 and b: 2)` means `not a: 1 or not b: 2`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::attributes::{Attributes, BadAttribute, check};

/// Maximum bytes of a formula's text, both as parsed and as formatted again.
pub const TEXT_MAX: usize = 4 * 1_024;
/// Maximum conditions (`name: value`) of a formula.
pub const ATOMS_MAX: usize = 256;
/// Maximum nesting of parentheses and `not`.
pub const DEPTH_MAX: usize = 32;

/// A syntax error in a formula, with its position.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("column {column}: {trouble}")]
pub struct FormulaError {
    /// Column of the error in characters, from 1.
    pub column: usize,
    /// Description of the syntax error.
    pub trouble: FormulaErrorKind,
}

/// Kind of an error in a formula.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FormulaErrorKind {
    /// A condition was expected.
    #[error("expected `name: value`, `not` or `(`, found {0}")]
    NoCondition(Token),
    /// The colon after a name is missing.
    #[error("expected `:` and a value after {0:?}")]
    NoColon(String),
    /// The value after a name and colon is missing.
    #[error("expected a value after `{0}:`, found {1}")]
    NoValue(String, Token),
    /// The name or the value is invalid.
    #[error(transparent)]
    Attribute(#[from] BadAttribute),
    /// Unexpected text follows the formula.
    #[error("expected `and`, `or` or the end, found {0}")]
    Stray(Token),
    /// A parenthesis is not closed.
    #[error("expected `and`, `or` or the `)` of the `(` in column {opened}, found {found}")]
    Unclosed {
        /// Position of the opening parenthesis.
        opened: usize,
        /// Token found in place of the closing parenthesis.
        found: Token,
    },
    /// The formula is nested too deeply.
    #[error("more than {DEPTH_MAX} nested parentheses and `not`s")]
    TooDeep,
    /// The formula has too many conditions.
    #[error("more than {ATOMS_MAX} conditions")]
    TooMany,
    /// The text is too long.
    #[error("the formula, or its normal form, is longer than {TEXT_MAX} bytes")]
    TooLong,
}

/// A token of a formula.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Token {
    /// A name, a value or an operator.
    Word(String),
    /// A character that is not part of a word.
    Character(char),
    /// End of the text.
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Character(character) => write!(f, "{character:?}"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// A formula, as written, without redundant spaces and parentheses. Equality compares the text; to compare meanings, compare the
/// results of [`Self::canonical`]. Serialized as text.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Formula(Node);

#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Node {
    Atom {
        name: String,
        value: String,
    },
    Not(Box<Node>),
    /// Conjunction of two or more parts.
    And(Vec<Node>),
    /// Disjunction of two or more parts.
    Or(Vec<Node>),
}

impl Formula {
    /// Parses a formula. The operators `and`, `or` and `not` are case-insensitive.
    ///
    /// # Errors
    /// [`FormulaError`]
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        if text.len() > TEXT_MAX {
            return Err(FormulaError { column: 1, trouble: FormulaErrorKind::TooLong });
        }
        let mut parser = Parser { text, at: 0, atoms: 0 };
        let node = parser.or(0)?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error_here(FormulaErrorKind::Stray(parser.found())));
        }
        let formula = Self(node);
        // Formatting adds spaces, and the normal form adds `not`s: the formatted text must parse again.
        if formula.to_string().len() > TEXT_MAX || formula.canonical().to_string().len() > TEXT_MAX {
            return Err(FormulaError { column: 1, trouble: FormulaErrorKind::TooLong });
        }
        Ok(formula)
    }

    /// Returns whether a node with these attributes satisfies the formula.
    #[must_use]
    pub fn satisfied_by(&self, attributes: &Attributes) -> bool {
        self.0.holds(attributes, false)
    }

    /// Returns an equivalent formula in canonical form: `not` only before conditions (negation normal form), nested `and` and `or`
    /// flattened, sorted, without duplicates.
    #[must_use]
    pub fn canonical(&self) -> Self {
        Self(self.0.normal(false))
    }

    /// Returns the conditions as name and value, in the order of the text.
    #[must_use]
    pub fn atoms(&self) -> Vec<(&str, &str)> {
        let mut all = Vec::new();
        self.0.atoms(&mut all);
        all
    }
}

impl Node {
    fn holds(&self, attributes: &Attributes, negated: bool) -> bool {
        match self {
            Self::Atom { name, value } => {
                attributes.get(name).is_some_and(|found| (found == value) != negated)
            }
            Self::Not(node) => node.holds(attributes, !negated),
            // De Morgan: a negated `and` is an `or` of negated parts, and vice versa.
            Self::And(nodes) | Self::Or(nodes) if matches!(self, Self::And(_)) != negated => {
                nodes.iter().all(|node| node.holds(attributes, negated))
            }
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().any(|node| node.holds(attributes, negated)),
        }
    }

    fn normal(&self, negated: bool) -> Self {
        match self {
            Self::Atom { .. } if negated => Self::Not(Box::new(self.clone())),
            Self::Atom { .. } => self.clone(),
            Self::Not(node) => node.normal(!negated),
            Self::And(nodes) | Self::Or(nodes) => {
                let is_and = matches!(self, Self::And(_)) != negated;
                let mut parts = Vec::with_capacity(nodes.len());
                for node in nodes {
                    match node.normal(negated) {
                        Self::And(inner) if is_and => parts.extend(inner),
                        Self::Or(inner) if !is_and => parts.extend(inner),
                        other => parts.push(other),
                    }
                }
                parts.sort();
                parts.dedup();
                join(parts, if is_and { Self::And } else { Self::Or })
            }
        }
    }

    fn atoms<'a>(&'a self, all: &mut Vec<(&'a str, &'a str)>) {
        match self {
            Self::Atom { name, value } => all.push((name, value)),
            Self::Not(node) => node.atoms(all),
            Self::And(nodes) | Self::Or(nodes) => nodes.iter().for_each(|node| node.atoms(all)),
        }
    }

    /// Formats a part of an `and`, an `or` or a `not`. A nested `and` or `or` gets parentheses, except an `and` within an `or`.
    fn write_part(&self, within_or: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Or(_) => write!(f, "({self})"),
            Self::And(_) if !within_or => write!(f, "({self})"),
            _ => write!(f, "{self}"),
        }
    }
}

/// Combines nodes with `all`: [`Node::And`] or [`Node::Or`]. A single node is returned unchanged.
fn join(mut parts: Vec<Node>, all: fn(Vec<Node>) -> Node) -> Node {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            all(parts)
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nodes, word, is_or) = match self {
            Self::Atom { name, value } => return write!(f, "{name}: {value}"),
            Self::Not(node) => {
                f.write_str("not ")?;
                return node.write_part(false, f);
            }
            Self::And(nodes) => (nodes, " and ", false),
            Self::Or(nodes) => (nodes, " or ", true),
        };
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 {
                f.write_str(word)?;
            }
            node.write_part(is_or, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Formula {
    type Err = FormulaError;

    fn from_str(text: &str) -> Result<Self, FormulaError> {
        Self::parse(text)
    }
}

impl Serialize for Formula {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Formula {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Recursive-descent parser, with one function for each level of precedence.
struct Parser<'a> {
    text: &'a str,
    at: usize,
    atoms: usize,
}

impl<'a> Parser<'a> {
    fn or(&mut self, depth: usize) -> Result<Node, FormulaError> {
        let mut parts = vec![self.and(depth)?];
        while self.take_keyword("or") {
            parts.push(self.and(depth)?);
        }
        Ok(join(parts, Node::Or))
    }

    fn and(&mut self, depth: usize) -> Result<Node, FormulaError> {
        let mut parts = vec![self.unary(depth)?];
        while self.take_keyword("and") {
            parts.push(self.unary(depth)?);
        }
        Ok(join(parts, Node::And))
    }

    fn unary(&mut self, depth: usize) -> Result<Node, FormulaError> {
        self.space();
        let opened = self.at;
        let is_not = self.take_keyword("not");
        if !is_not && !self.take('(') {
            return self.atom();
        }
        if depth == DEPTH_MAX {
            return Err(self.error(opened, FormulaErrorKind::TooDeep));
        }
        if is_not {
            return Ok(Node::Not(Box::new(self.unary(depth + 1)?)));
        }
        let node = self.or(depth + 1)?;
        self.space();
        if !self.take(')') {
            let trouble = FormulaErrorKind::Unclosed { opened: self.column(opened), found: self.found() };
            return Err(self.error_here(trouble));
        }
        Ok(node)
    }

    fn atom(&mut self) -> Result<Node, FormulaError> {
        let (name_at, name) = (self.at, self.word());
        if name.is_empty() || is_keyword(name) {
            self.at = name_at;
            return Err(self.error_here(FormulaErrorKind::NoCondition(self.found())));
        }
        self.at += name.len();
        self.space();
        if !self.take(':') {
            return Err(self.error_here(FormulaErrorKind::NoColon(name.to_owned())));
        }
        self.space();
        let (value_at, value) = (self.at, self.word());
        if value.is_empty() {
            return Err(self.error_here(FormulaErrorKind::NoValue(name.to_owned(), self.found())));
        }
        self.at += value.len();
        check(name, value).map_err(|bad| {
            let at = if matches!(bad, BadAttribute::Value { .. }) { value_at } else { name_at };
            self.error(at, bad.into())
        })?;
        self.atoms += 1;
        if self.atoms > ATOMS_MAX {
            return Err(self.error(name_at, FormulaErrorKind::TooMany));
        }
        Ok(Node::Atom { name: name.to_owned(), value: value.to_owned() })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Returns the text up to a space or an operator. The text is validated later, so that an error shows the whole word.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ':' | '(' | ')'));
        &rest[..end.unwrap_or(rest.len())]
    }

    fn take(&mut self, sign: char) -> bool {
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len_utf8() } else { 0 };
        is_next
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        self.space();
        let is_next = self.word().eq_ignore_ascii_case(keyword);
        self.at += if is_next { keyword.len() } else { 0 };
        is_next
    }

    fn found(&self) -> Token {
        match (self.word(), self.rest().chars().next()) {
            (_, None) => Token::End,
            ("", Some(character)) => Token::Character(character),
            (word, _) => Token::Word(word.to_owned()),
        }
    }

    fn column(&self, at: usize) -> usize {
        self.text.get(..at).map_or(0, |before| before.chars().count()) + 1
    }

    fn error(&self, at: usize, trouble: FormulaErrorKind) -> FormulaError {
        FormulaError { column: self.column(at), trouble }
    }

    fn error_here(&self, trouble: FormulaErrorKind) -> FormulaError {
        self.error(self.at, trouble)
    }
}

fn is_keyword(word: &str) -> bool {
    ["and", "or", "not"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}
