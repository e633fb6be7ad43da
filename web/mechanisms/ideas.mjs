// The idea of each mechanism that has no page of its own in src/mechanisms/: two or three sentences, which are
// messages of the site. They stand in the HTML of its page.
export const IDEAS = {
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
};
