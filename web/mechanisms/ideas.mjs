// The idea of each mechanism that has no page of its own in src/mechanisms/: two or three sentences, which are
// messages of the site. They stand in the HTML of its page.
export const IDEAS = {
  hard: "Softmax spreads its weight over all keys; hard attention gives all of it to the best one and copies that value. It is the limit of softmax as the temperature falls to zero, and easy to read. Its price is the gradient: a small change of a score changes nothing, so nothing is learned through the choice.",
  average:
    "What does attention add over a plain mean? This is the plain mean: every visible key counts the same, and queries and keys are not even read. It is the baseline that shows whether looking matters, and with a causal mask it is the running average of all tokens so far.",
  top_k:
    "Most weights of a long row are tiny, and together they blur the answer. Top-k keeps the k largest scores of each query and takes the softmax over those alone, so that far keys cannot add up. All scores are still computed: what is saved is noise, not time.",
  sigmoid:
    "In a softmax row one key can only gain what others lose. Here every key is judged alone, by the sigmoid of its score, so a query may find many keys important, or none. A negative bias that grows with the length keeps the sums of rows near those of softmax; without one they grow with every key.",
  relu: "The exponential of softmax is replaced by the positive part of the score, divided by the number of keys. Scores below zero get exactly no weight, and no row has to be summed before it can be used. Vision transformers trained this way come close to softmax.",
  relu_squared:
    "Between ReLU, which weighs in proportion to the score, and softmax, which favours the best exponentially, lies the square: negative scores get nothing, and a score twice as large weighs four times as much. Like ReLU it needs no sum over the row; weights are divided by the number of visible keys.",
  stick_breaking:
    "Think of one unit of attention as a stick. The nearest key breaks off its share, as large as the sigmoid of its score; the next takes its share of what is left, and so on backwards. Near keys come first without any position code, and what no key wanted is left over: rows may sum to less than one.",
  cope: "A position usually counts tokens; what is meant may be words, sentences or list items. Here each query counts only the keys whose gate it opens: the position of a key is the sum of the gates between it and the query, a number with a fraction. A learned logit for that position, interpolated, is added to the score.",
  luong_dot:
    "The plainest score: the dot product of a decoder's state with each state of the encoder, nothing learned. Query and key must have the same width, and without the division by √d the scores grow with it, so softmax gets sharp. Scaled dot-product attention is this with that division.",
  luong_general:
    "A learned matrix stands between query and key. It says which dimension of one answers to which of the other, so the two may have different widths and live in different spaces. The query and key projections of a transformer are such a matrix, split in two.",
  luong_concat:
    "Query and key are written one after the other and go through one layer with a tanh; a learned vector turns its output into a score. Since the layer is linear before the tanh, this is additive attention with both projections in one matrix. Each score costs as much as a small network, not one dot product.",
  luong_location:
    "The query alone predicts how much weight each place gets; what stands there is not read. In translation that can work, since word order is mostly kept. It cannot answer to what a sentence says, and the number of places is fixed by the learned matrix.",
  t5_relative:
    "Which distance matters can be learned: one number per head and distance, added to the score. Near distances have a number each, far ones share buckets that double in width, so a small table covers any length. Position then needs no code in the embeddings at all.",
  shaw_relative:
    "The first relative positions: every distance, up to a limit, has a learned vector. One is added to the key before the dot product, so a query can prefer a distance; another is added to the value, so the output knows how far away it came from. Beyond the limit all distances are the same.",
  transformer_xl:
    "A text is read in segments, and each may look back into the states of the one before. Absolute positions would then collide, so the score has four terms: content with content, content with distance, and two learned biases that stand for a query’s liking of a key, or of a distance, whatever the query is.",
  disentangled:
    "What a token is and where it stands are kept apart: each has a vector of its own. The score adds three products: content with content, content with distance, and distance with content. With three terms of equal size it is divided by √(3d), so that its spread stays that of one.",
  forgetting:
    "Recurrent networks forget through gates; softmax attention cannot. Here every token has a forget gate, and the logarithms of all gates between query and key, which are negative, are added to the score: each gate fades everything before it by one factor. How fast the past fades then depends on what is read, not on distance alone.",
  cosine:
    "A long key wins every dot product, whichever way it points. Dividing by both lengths leaves the cosine of the angle, between −1 and 1, and a learned temperature decides how sharp softmax is. Scores can no longer explode, which made larger vision models train stably.",
  gaussian:
    "The score is minus the squared distance between query and key, so a key is close or far instead of aligned or not. Softmax over it is kernel regression with a Gaussian kernel, and the width says how far a query looks. Where all keys have one length, it is dot-product attention again.",
  differential:
    "Two softmax maps are computed and one is subtracted from the other, as noise-cancelling headphones do: what both give to irrelevant keys drops out, what only the first sees stays. λ, learned, says how much is subtracted. Weights may be negative, so the picture has two colours.",
  talking_heads:
    "Heads usually know nothing of each other until their outputs are added. Here a small matrix mixes their scores before softmax, and another their weights after it, so one head may sharpen or veto another. All heads of a pair are needed at once, which costs more memory traffic than heads that work alone.",
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
  multi_query:
    "When a model writes, each new token reads all keys and values of all heads from memory, and that decides the speed. If the heads share one set of keys and values, there is as many times less to keep and to read as there are heads. Queries stay different, so heads still look at different things.",
  grouped_query:
    "One set of keys and values for all heads saves memory and costs quality; one each does the reverse. Groups of heads share a set, commonly four or eight heads: the cache shrinks by that factor and little is lost. One group is multi-query attention, one head a group is multi-head attention.",
  transformer_block:
    "Attention moves information between tokens; a feed-forward network then works on each token alone. Both add to what came in instead of replacing it, so a block that has learned nothing does no harm, and gradients reach the first layer. Whether the norm stands before or after each step decides how easily deep stacks train.",
  attention_classifier:
    "The smallest whole model of this list: numbers of tokens in, one score per class out. Tokens become embeddings, attend to each other once, are pooled into a single vector, and a linear map judges it. It shows what every text classifier does, and is small enough to train in a tab.",
  multi_head_latent:
    "Sharing keys and values makes a cache small by making heads alike. Here each token keeps one small latent vector, and every head rebuilds its own keys and values from it. The rebuilding can be folded into the query and output projections, so decoding reads the latents alone; position travels in a small key beside them.",
  xpos: "RoPE turns pairs of dimensions by angles, so products depend on the distance only; but far products swing up and down. xPos also multiplies queries and shrinks keys by a power of their position, so that products fade with distance, fast pairs first. Longer texts than those of the training then stay readable.",
  sinusoidal:
    "Attention does not know the order of its tokens; this tells it. Each position becomes a row of sines and cosines, from fast to slow, like the hands of many clocks, and is added to the embedding. A shift by some tokens turns every clock by a fixed angle, so distances can be read by a linear map.",
  learned_position:
    "Instead of a formula, each position has a row of a table that is learned with everything else and added to the embedding. BERT and GPT-2 do so. A position beyond the table has no row, which is why such models have a hard limit of length.",
  ttt_linear:
    "The state of a recurrence is a small model, and reading is learning: every token is one step of gradient descent on predicting the value from the key. The query then asks the model. Mistakes decide what is written, as in the delta rule; a norm and a residual around the model keep the steps stable.",
  causal_conv:
    "Recurrent models are poor at comparing a token with the one just before. A filter over the last few tokens, four as a rule, one per channel, gives each the recent past at almost no cost. It stands before queries, keys and values of Mamba, the delta rules and others; a step needs only the last few inputs.",
};
