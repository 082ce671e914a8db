"""Head screen: behavior, inputs and ablation of one attention head.

`asking`: which head, on which tasks, all in the address, and the steps to its neighbours
`measuring`: what is stored of it, what is measured on opening, and a button for each part that is missing
`portrait`: its scores among all heads, and its pattern on random tokens and in a text
`losses`: what is lost without it, and where it stands by every criterion
`idealised`: how much of what it is worth is left with an ideal pattern in place of its own
`in_texts`: where it looks in a text, which tokens it raises there, and what the text loses without it
`by_weights`: which tokens it raises wherever it looks at one
`feeders`: which earlier heads feed it
`tables`: all of that as rows, and as sentences
`charts`: all of that as pictures
"""
