"""Send on schedule, write down what happened, judge nothing."""
