// The idea of each mechanism that has no page of its own in src/mechanisms/: two or three sentences, which are
// messages of the site. They stand in the HTML of its page.
export const IDEAS = {};
