import {
  Anchor,
  type AnchorProps,
  Button,
  type ButtonProps,
  type ElementProps,
  NavLink,
  type NavLinkProps,
} from '@mantine/core';
import { createLink } from '@tanstack/react-router';
import { BackLink as BackAnchor } from '../ui/BackLink.tsx';
import { type Guide, guides } from './guides.ts';
import type { ConnectionTab } from './search.ts';

/** Links between pages: addresses checked by the router, styles from Mantine. */
export const AnchorLink = createLink((props: AnchorProps & ElementProps<'a', keyof AnchorProps>) => (
  <Anchor {...props} />
));
export const ButtonLink = createLink((props: ButtonProps & ElementProps<'a', keyof ButtonProps>) => (
  <Button component="a" {...props} />
));
export const NavigationLink = createLink((props: NavLinkProps & ElementProps<'a', keyof NavLinkProps>) => (
  <NavLink {...props} />
));
export const BackLink = createLink(BackAnchor);

/** A link to the page of the guides that explains a part of the dashboard. Opens a tab, so that no input is lost. */
export function GuideLink({ to }: { to: Guide }) {
  const { path, words } = guides[to];
  return (
    <Anchor className="unbroken" inherit underline="always" href={`/guides/${path}`} target="_blank">
      {words}
    </Anchor>
  );
}

type At = { integration: string; id: string };

/** The addresses of pages with many links to them, for a link or a navigation. */
export const connectionPage = (environment: string, { integration, id }: At, tab?: ConnectionTab) =>
  ({
    to: '/$environment/connections/$integration/$id',
    params: { environment, integration, id },
    search: { tab },
  }) as const;
export const datasetPage = (
  environment: string,
  { integration, id, model, variant }: At & { model: string; variant: string },
) =>
  ({
    to: '/$environment/records/of/$integration/$id/$model',
    params: { environment, integration, id, model },
    search: { variant: variant === 'base' ? undefined : variant },
  }) as const;
export const integrationPage = (environment: string, key: string) =>
  ({ to: '/$environment/integrations/of/$key', params: { environment, key } }) as const;
export const runPage = (environment: string, run: string) =>
  ({ to: '/$environment/functions/runs/$run', params: { environment, run } }) as const;
export const functionPage = (
  environment: string,
  { integration, type, name }: { integration: string; type: string; name: string },
) =>
  ({
    to: '/$environment/functions/of/$integration/$type/$name',
    params: { environment, integration, type, name },
  }) as const;
