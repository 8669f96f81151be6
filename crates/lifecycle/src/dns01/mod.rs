//! Publishing dns-01 answers.
