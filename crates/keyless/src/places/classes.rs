//! Classes of nodes with equal attributes. The nodes of a site mostly have equal attributes, so a formula is evaluated once for
//! each class instead of each node.

use std::collections::HashMap;

use super::{Attributes, Formula};

/// Nodes, as indexes, grouped by equal attributes.
#[derive(Clone, Debug, Default)]
pub struct AttributeClasses(Vec<(Attributes, Vec<u32>)>);

impl AttributeClasses {
    /// Groups nodes by their attributes. Nodes are numbered from 0 in the given order.
    #[must_use]
    pub fn of(nodes: impl IntoIterator<Item = Attributes>) -> Self {
        let mut classes: Vec<(Attributes, Vec<u32>)> = Vec::new();
        let mut by_attributes: HashMap<Attributes, usize> = HashMap::new();
        for (number, attributes) in (0..).zip(nodes) {
            let class = *by_attributes.entry(attributes).or_insert_with_key(|attributes| {
                classes.push((attributes.clone(), Vec::new()));
                classes.len() - 1
            });
            classes[class].1.push(number);
        }
        Self(classes)
    }

    /// Returns the indexes of the nodes that satisfy a formula, in order.
    #[must_use]
    pub fn satisfying(&self, formula: &Formula) -> Vec<u32> {
        let those = self.0.iter().filter(|(attributes, _)| formula.satisfied_by(attributes));
        let mut numbers: Vec<u32> = those.flat_map(|(_, numbers)| numbers).copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the number of distinct attribute sets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn classes_match_the_same_nodes_as_the_formula(
            nodes in proptest::collection::vec((0..3_u8, 0..4_u8), 0..60),
            formula in prop_oneof!["a: 0", "not a: 1", "a: 0 and not b: 2", "a: 2 or b: 1 or b: 3"],
        ) {
            let nodes: Vec<Attributes> = nodes
                .into_iter()
                .map(|(a, b)| Attributes::of([("a", a.to_string()), ("b", b.to_string())]).unwrap())
                .collect();
            let formula: Formula = formula.parse().unwrap();
            let wanted: Vec<u32> =
                (0..).zip(&nodes).filter(|(_, node)| formula.satisfied_by(node)).map(|(number, _)| number).collect();
            let classes = AttributeClasses::of(nodes);
            prop_assert_eq!(classes.satisfying(&formula), wanted);
            prop_assert!(classes.count() <= 12);
        }
    }
}
