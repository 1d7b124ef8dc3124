import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import type { FunctionSearch } from '../search.ts';
import type { FunctionAt } from './queries.ts';

/** Leads to the page of a function; `looks` are those of the button or anchor that it is drawn as. */
export function FunctionLink({
  environment,
  at: { integration, type, name },
  search = {},
  children,
  ...looks
}: {
  environment: string;
  at: FunctionAt;
  search?: FunctionSearch;
  className?: string;
  children?: ReactNode;
}) {
  return (
    <Link
      to="/$environment/functions/of/$integration/$type/$name"
      params={{ environment, integration, type, name }}
      search={search}
      {...looks}
    >
      {children}
    </Link>
  );
}
