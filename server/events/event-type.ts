import { z } from 'zod';

/**
 * How a type of event is described, and what several types say in the same words.
 *
 * `data` is the schema of what the event carries: `queueEvent` takes nothing else, `GET /events/types` shows it as JSON
 * Schema, docs/events.md is written from it.
 */
export type DescribedType = {
  /** One sentence: what has happened when it is raised, and how often that is told. */
  meaning: string;
  data: z.ZodObject;
  example: object;
};

/** Describes one type; the compiler compares the example with the schema. */
export function eventType<S extends z.ZodObject>(described: {
  meaning: string;
  data: S;
  example: z.input<S>;
}): typeof described {
  return described;
}

export const time = z.iso.datetime().describe('ISO 8601, UTC');
export const count = z.int().min(0);
export const nextStep = z.string().describe('What to do, for people to read');
/** Codes and numbers by which the provider said it; never a token, and never its text. */
export const evidence = z
  .record(z.string(), z.union([z.string(), z.number()]))
  .describe('Codes and numbers by which the provider said it');

export const ofIntegration = {
  provider_config_key: z.string().describe('The integration'),
  provider: z.string(),
  test: z.boolean().describe("Whether the integration is the sandbox's"),
};
export const endUser = z
  .strictObject({ id: z.string() })
  .nullable()
  .describe("The application's user; of what is known of them the ID alone");
export const tags = z.record(z.string(), z.string());
export const ofConnection = {
  connection_id: z.string(),
  ...ofIntegration,
  account: z
    .strictObject({ id: z.string(), email: z.string().optional() })
    .nullable()
    .describe('The account at the provider, where it tells'),
  tags,
  end_user: endUser,
};
export const ofDataset = {
  connection_id: z.string(),
  provider_config_key: ofIntegration.provider_config_key,
  model: z.string(),
  variant: z.string(),
};

/** What every event about a connection says of it. */
export type ConnectionSubject = z.input<z.ZodObject<typeof ofConnection>>;
/** What every event about an integration says of it. */
export type IntegrationSubject = z.input<z.ZodObject<typeof ofIntegration>>;
/** What every event about a dataset says of it. */
export type DatasetSubject = z.input<z.ZodObject<typeof ofDataset>>;

/** What the examples are about. */
export const exampleIntegration = {
  provider_config_key: 'google-sheet',
  provider: 'google-sheet',
  test: false,
};
export const exampleConnection = {
  connection_id: 'ada-sheets',
  ...exampleIntegration,
  account: { id: '179550736925643251058', email: 'ada@customer.example' },
  tags: { team: 'analysis' },
  end_user: { id: 'ada' },
};
export const exampleDataset = {
  connection_id: 'ada-sheets',
  provider_config_key: 'google-sheet',
  model: 'Row',
  variant: 'base',
};
