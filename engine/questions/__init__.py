"""Tasks, and their questions as text and tokens.

`tasks`: which tasks there are, and where their rows are
`rows`: rows, read and checked
`text_files`: text files in the encodings and with the line ends of other programs
`pair_files`: files of word pairs, such as spreadsheets write them
`white_space`: white space at the ends of a user's own texts
`faults`: faulty rows, and the errors that name all of them
`rendering`: rows rendered by lm-evaluation-harness into hashed questions
`harness`: its tasks as objects, with rows of this computer
`labels`: labels of the solved examples: true answers, shuffled ones, or unrelated words
`chats`: the chat template of a model, and prompts rendered with it
`special_tokens`: the special tokens of a model folder, which a chat template may use
`chat_process`: renders chats in a process of its own, with bounded time and memory
`word_pairs`: tasks of word pairs, and their prompts with true or shuffled answers
`lm_eval_internals`: private and fragile parts of lm-evaluation-harness, and two answer metrics that it needs
`encoding`: questions as tokens, packed one row a question; a text as tokens
`checked_encoding`: questions as tokens, or an error that names all that cannot be scored
"""
