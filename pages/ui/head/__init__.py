"""Head screen: behavior and ablation of one attention head.

`asking`: the choice of head and tasks, all in the address, and the steps to its neighbors
`measuring`: stored parts, cheap ones measured on opening, and a button for each missing part
`portrait`: its largest score, and its pattern on random tokens and in a text
`ranks`: its place among all heads, by every score and every criterion
`losses`: losses without it
`in_texts`: where it looks in a text, which tokens it raises there, and the text's losses without it
`by_weights`: which tokens it raises wherever it looks at one
`tables`: all of that as rows, and as sentences
`charts`: all of that as pictures
"""
