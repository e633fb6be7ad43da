// In which order pictures of heads stand. The words are those of links.

/** From the sharpest to the most spread out, from near to far, as the mechanism counts them. */
export const HEAD_ORDERS = ["entropy", "distance", "own"] as const;
export type HeadOrder = (typeof HEAD_ORDERS)[number];

export const FIRST_ORDER: HeadOrder = "entropy";

/** A link is input from a stranger: what names no order is the first. */
export const orderInLink = (text: string | null | undefined): HeadOrder =>
  HEAD_ORDERS.find((order) => order === text) ?? FIRST_ORDER;
