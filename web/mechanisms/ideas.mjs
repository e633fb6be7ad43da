// The idea of each mechanism that has no page of its own in src/mechanisms/: two or three sentences, which are
// messages of the site. They stand in the HTML of its page.
export const IDEAS = {
  luong_location:
    "The query alone predicts how much weight each place gets; what stands there is not read. In translation that can work, since word order is mostly kept. It cannot answer to what a sentence says, and the number of places is fixed by the learned matrix.",
  gated:
    "Softmax must give all its weight away, even where a query needs nothing; models then park it on the first token. A gate after attention, the sigmoid of a projection of the query’s token, can simply close. It also puts a non-linear step between values and output, and large models train more stably.",
  attention_pooling:
    "A set has any number of members; a classifier wants a fixed number of vectors. A few learned queries, the same for every input, look at all members, and each gathers what it has learned to ask for. The result does not depend on the order of the members, and time grows with their number alone.",
  external:
    "Tokens do not look at each other but at a small memory of learned keys and values that all inputs share. It holds what was common to the whole training set, so different pictures meet in it. Weights are normalised twice, over the tokens and over the memory, and time grows with the length alone.",
  synthesizer:
    "Must a weight come from comparing two tokens? Here a token predicts its whole row by itself, through a small network, or the matrix is learned once and is the same for every text. Models so made do better than one expects, which says how much attention learns habits of position.",
  attention_free:
    "Every channel has weights of its own: the exponential of a key’s entry plus a learned bias for the pair of positions. The query comes in only afterwards, as a gate. Without the bias nothing depends on the pair, and running sums are enough; with it, each pair costs one exponential a channel, but no dot product.",
  induced_set:
    "In self-attention every member of a set meets every other. Here a few learned points read the set first, then the members read those points: two steps whose time grows with the size of the set, not with its square. All members still reach each other, through the points, and their order does not matter.",
  perceiver:
    "Pixels or samples of sound are too many to attend to each other. A small array of learned latents asks instead, and the input only answers: the cost is latents times inputs. Whatever follows works on the latents, whose number does not depend on the input, so a deep network costs the same for any of them.",
  multi_head:
    "One softmax can look at one thing at a time; a word may need its verb, its adjective and the word before. Several heads project the same tokens into small spaces of their own and attend there, side by side. Their outputs are joined by one more projection, for about the cost of a single head of full width.",
  transformer_block:
    "Attention moves information between tokens; a feed-forward network then works on each token alone. Both add to what came in instead of replacing it, so a block that has learned nothing does no harm, and gradients reach the first layer. Whether the norm stands before or after each step decides how easily deep stacks train.",
  attention_classifier:
    "The smallest whole model of this list: numbers of tokens in, one score per class out. Tokens become embeddings, attend to each other once, are pooled into a single vector, and a linear map judges it. It shows what every text classifier does, and is small enough to train in a tab.",
  linformer:
    "The matrix of weights has low rank: a few directions hold most of it. So keys and values are first mixed, along the sequence, into a small fixed number of rows, and queries attend to those. Time grows with the length alone; the price is that the length is fixed by the learned mixture, and that it cannot be causal.",
  efficient:
    "Softmax is taken of queries and of keys apart, not of their product: of a query over its features, of the keys over the tokens. Then keys and values can be multiplied first, into a matrix as small as a head, and queries read from it. Each of its rows is a global summary that the keys have voted for.",
  nystrom:
    "A large matrix can be rebuilt from a few of its rows and columns. The sequence is cut into segments whose means are landmarks; three small softmax matrices, query to landmark, landmark to landmark inverted, and landmark to key, stand for the whole. Where segments are smooth little is lost; the inverse may give small negative weights.",
  memory_compressed:
    "Neighbouring keys often say much the same. A convolution whose stride is as long as its kernel makes one key and one value of every few, and queries attend to that shorter memory, with the exact softmax. Cost falls by the factor of compression, and single tokens can no longer be told apart.",
  gated_linear:
    "Linear attention adds every token to its state for ever, until it is full. Here each token brings a gate between 0 and 1 for every channel of the key, and the state is multiplied by it before the new pair is added. What is kept is learned from the text, and a whole chunk can still be computed by matrix products.",
  mamba2:
    "A state space model and causal attention are two ways to compute one thing. With one decay per head and token, the recurrence equals a product of queries and keys under a mask whose entries are products of decays. Step by step it needs little memory, as a matrix it runs at the speed of matrix products.",
  gated_delta_rule:
    "A decay clears the whole state at once and cannot pick; the delta rule replaces one association and cannot clear. Together they do both: first the state fades by a gate, then the value that it answers to the new key is exchanged for the new one. Several recent models mix such layers with a few of full attention.",
  kimi_delta:
    "The gated delta rule has one decay for a whole head. Here every channel of the key has its own, so a head can keep some features for long and drop others at once, as a position code would. The rest is the delta rule: what the faded state answers to the key is replaced.",
  cosformer:
    "Softmax does two things: weights are never negative, and near or fitting keys stand out. Here ReLU does the first, and a cosine of the distance the second. A cosine of a difference is a sum of products of sines and cosines, so queries and keys still separate, and time grows with the length alone.",
  based:
    "For small scores the exponential is nearly 1 + x + x²/2. That polynomial is a product of features, one for each pair of dimensions, so keys and values fit into a state. Recall from long texts needs a large state: the number of features grows with the square of the head’s width, and is the dial between memory and recall.",
  lightning:
    "The recurrence of retention, with fixed rates of forgetting: those of ALiBi’s slopes, one per head, slower in upper layers. Computed in blocks it needs no running sum over tokens: inside a block a masked product, between blocks one state. Time for a token does not depend on how many came before.",
  hgrn2:
    "A gated recurrence keeps a share f of its state and writes the share 1 − f. Here that very 1 − f is the key: a channel that forgets much writes much. It spares the key projection, widens the state of a simple gated network to a matrix, and makes it a kind of gated linear attention.",
  rwkv6:
    "Each token decides, channel by channel, how fast the state forgets. A token reads before it writes: it sees the past through the state, and itself through a learned bonus, so that the newest pair can count for more than its turn. Training is parallel in chunks, writing needs one matrix per head.",
  rwkv7:
    "The delta rule erases what stands under the key that it writes, at one rate. Here the key that is erased, the rate of erasing in every channel, and the decay are free of the key that is written. Such a state can swap and rearrange what it holds, which lets it track things that plain linear attention loses.",
  log_linear:
    "One state for the whole past is small; a key for every token is large. Here the past is cut into blocks whose lengths are powers of two, short ones near, long ones far, with a state each, and every token weighs them anew. The number of states grows with the logarithm of the length.",
  ttt_linear:
    "The state of a recurrence is a small model, and reading is learning: every token is one step of gradient descent on predicting the value from the key. The query then asks the model. Mistakes decide what is written, as in the delta rule; a norm and a residual around the model keep the steps stable.",
  causal_conv:
    "Recurrent models are poor at comparing a token with the one just before. A filter over the last few tokens, four as a rule, one per channel, gives each the recent past at almost no cost. It stands before queries, keys and values of Mamba, the delta rules and others; a step needs only the last few inputs.",
  block_mixture:
    "Like a mixture of experts, with blocks of keys as the experts: each query scores the mean key of every block, takes the best few and its own, and attends to those exactly. The choice has nothing to learn, so a model can change between this and full attention. Cost follows the number of blocks that are chosen.",
  native_sparse:
    "A long past is seen in three ways at once: as summaries of blocks, as the few blocks whose summaries fit best, and as the last tokens exactly. Gates weigh the three, token by token. Since the choice is by whole blocks and learned from the start, it is fast where memory is read, in training too.",
  streaming:
    "A window over the last tokens should be enough to go on writing, yet models fail as soon as the first tokens leave it. Softmax has to put spare weight somewhere, and they have learned to put it there. Keeping a few first tokens beside the window is enough for texts without end; what lies between is forgotten.",
  heavy_hitter:
    "Few tokens receive most of the weight over time. While a model writes, the cache keeps the newest tokens, and of the older ones those that have been looked at most so far; when it is full, the least wanted goes. What has once been dropped cannot come back, even where a later query would ask for it.",
  quest:
    "Nothing is dropped, but not all is read. For each page of the cache the smallest and largest entry of every channel are kept; from these follows the most that any key of the page could score with a query. Each query reads the pages with the highest bound. The bound may promise more than a page holds, never less.",
  indexed:
    "A very small scorer, few heads with a ReLU, rates all keys for each query, and attention proper runs over the best of them alone. Rating is still quadratic, but so cheap that long texts gain much. The indexer learns to imitate the weights that full attention would give.",
  routing:
    "Queries and keys that point the same way belong together. A set of centroids, learned by running means, divides the directions; each cluster takes the tokens nearest to its centroid and they attend among themselves. With about √n clusters of √n tokens, time grows with n√n, and a token in no cluster gets nothing.",
  sinkhorn:
    "A block of queries needs its own block of keys and perhaps one that lies elsewhere; which one is learned as a permutation of blocks. Sinkhorn’s method makes a matrix of scores nearly a permutation, by norming rows and columns in turn, so that the sorting has a gradient. Each block then attends to its own and to the one that came.",
};
