import type { IncomingMessage } from 'node:http';
import type { Attempt } from './attempt.ts';
import { tooLongForField, withField } from './credential-body.ts';
import { isShort, readWhole, Upload } from './upload.ts';

/** A body on its way to the provider: it streams by, or is held whole where it may have to be sent again. */
export class OutgoingBody {
  #content: Buffer | Upload;

  private constructor(content: Buffer | Upload) {
    this.#content = content;
  }

  /** The body as it comes. As long as it is short it is kept, and can be sent again once it has gone by. */
  static streamed(request: IncomingMessage, limits: Limits): OutgoingBody {
    return new OutgoingBody(new Upload(request, limits));
  }

  /** The body once it has come. Throws `invalid_body` where it is too long, and what `readWhole` throws. */
  static async whole(request: IncomingMessage, limits: Limits): Promise<OutgoingBody> {
    const bytes = await readWhole(new Upload(request, limits));
    if (bytes === undefined) throw tooLongForField();
    return new OutgoingBody(bytes);
  }

  get content(): Buffer | Upload {
    return this.#content;
  }

  get sizeBytes(): number {
    return this.#content instanceof Upload ? this.#content.sizeBytes : this.#content.length;
  }

  /** Whether the provider could have all of it. */
  get isWhole(): boolean {
    return !(this.#content instanceof Upload) || this.#content.isWhole;
  }

  /** Whether it can be sent once more now. */
  get isRepeatable(): boolean {
    return !(this.#content instanceof Upload) || (this.#content.isKept && this.#content.isWhole);
  }

  /** Nobody will send it again. */
  forget(): void {
    if (this.#content instanceof Upload) this.#content.forget();
  }

  /** Takes the place of what has gone by, so that it can be sent again. */
  rewind(): void {
    if (this.#content instanceof Upload) this.#content = this.#content.copy() ?? Buffer.alloc(0);
  }

  /**
   * Reads what is still to come of a short body, for another attempt alone; see `Upload.rest`. Whether there is a whole
   * one then.
   */
  async complete(gapMs: number): Promise<boolean> {
    if (!(this.#content instanceof Upload)) return true;
    const bytes = await this.#content.rest(gapMs);
    if (bytes !== undefined) this.#content = bytes;
    return bytes !== undefined;
  }

  /** Whether `complete` is worth a try: it is announced to be short, and was kept so far. */
  mayComplete(request: IncomingMessage): boolean {
    return this.isRepeatable || (this.#content instanceof Upload && this.#content.isKept && isShort(request));
  }
}

type Limits = ConstructorParameters<typeof Upload>[1];

/** The message with the credentials in its body; undefined where they belong elsewhere. */
export function messageWith(
  { headers, placed }: Attempt,
  body: OutgoingBody | undefined,
): { headers: string[]; body: Buffer } | undefined {
  if (placed.body === undefined) return undefined;
  // Whatever body there is has been read whole.
  const content = body?.content;
  return withField({ headers, body: Buffer.isBuffer(content) ? content : Buffer.alloc(0) }, placed.body);
}
