import { hashText } from "./random.js";

/** What a translation is found by: short, as a thousand of them are loaded; the build finds clashes. */
export const messageKey = (message: string): string => hashText(message).toString(36).slice(-5);
