// What a screen reader is told: the last sentence, once things have been still for a moment.
const QUIET_MS = 200;

class Announcer {
  message = $state("");
  private timer: ReturnType<typeof setTimeout> | undefined;

  say(message: string): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.message = message;
    }, QUIET_MS);
  }
}

export const announcer = new Announcer();
