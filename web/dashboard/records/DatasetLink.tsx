import { Badge, Group, Text } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import type { At } from '../connections/queries.ts';
import type { Dataset } from './queries.ts';

/** A dataset by its name, with what its owner should know; the row around it leads there. */
export function DatasetLink({
  environment,
  at,
  dataset: { model, variant, delete_tracking: tracking },
}: {
  environment: string;
  at: At;
  dataset: Pick<Dataset, 'model' | 'variant' | 'delete_tracking'>;
}) {
  return (
    <Group gap={6}>
      <Link
        className="fill-link"
        to="/$environment/records/of/$integration/$id/$model"
        params={{ environment, ...at, model }}
        search={{ variant: variant === 'base' ? undefined : variant }}
      >
        <Text span fw={550} size="sm" className="wrap">
          {model}
        </Text>
      </Link>
      {variant !== 'base' && <Badge color="gray">{variant}</Badge>}
      {tracking === 'held' && <Badge color="orange">deletion held</Badge>}
      {tracking === 'open' && <Badge color="teal">full sync runs</Badge>}
    </Group>
  );
}
